// Text for Plotly, which interprets tags (<a href>, <b>, <br>, <span>) and entities in labels, names, titles and hover texts.

const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };

// Escapes a text so that it is displayed unchanged. All names and values of publishers and operators pass through it.
export const plain = (text) => String(text).replace(/[&<>]/g, (character) => ENTITIES[character]);

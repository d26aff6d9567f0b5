// Text for Plotly, which reads tags (<a href>, <b>, <br>, <span>) and entities in labels, names, titles and hover texts.

const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };

// The same characters on the screen, and no tag among them. Whatever a publisher or an operator has chosen goes through here.
export const plain = (text) => String(text).replace(/[&<>]/g, (character) => ENTITIES[character]);

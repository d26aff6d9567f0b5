// Without `validatorUrl`, Swagger UI would send the document to another host.
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger",
  deepLinking: true,
  docExpansion: "none",
  filter: true,
  persistAuthorization: true,
  validatorUrl: null,
  presets: [SwaggerUIBundle.presets.apis],
});

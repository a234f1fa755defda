// Shows the OpenAPI document of this site; requests tried from it carry the key that the reader enters.

const place = document.getElementById("reference");

window.SwaggerUIBundle({
  url: place.dataset.document,
  dom_id: "#reference",
  deepLinking: true,
  presets: [window.SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
  validatorUrl: null, // nothing is sent to another site
});

// Applies the chosen theme before the page is drawn. Not a module, as modules are deferred.
{
  let chosen = null;
  try { chosen = localStorage.getItem("edn-theme"); } catch { /* storage may be disabled: use the system's theme */ }
  if (chosen) document.documentElement.dataset.theme = chosen;
}

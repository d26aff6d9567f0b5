// Before anything is drawn: the theme that was chosen, or the system's. Not a module, so that it does not wait.
{
  let chosen = null;
  try { chosen = localStorage.getItem("edn-theme"); } catch { /* storage may be forbidden; then the system's */ }
  if (chosen) document.documentElement.dataset.theme = chosen;
}

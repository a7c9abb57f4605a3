// Sets the theme that the person chose before anything is drawn. A file of its own, which the page
// runs before its style sheet: all others wait until the page is read.

{
  const kept = localStorage.getItem("gateway-theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
}

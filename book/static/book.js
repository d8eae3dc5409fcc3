// A click on a figure shows it in its full size; another click, or Escape, closes it.
const viewer = document.createElement("dialog");
const large = document.createElement("img");
viewer.className = "viewer";
viewer.append(large);
viewer.addEventListener("click", () => viewer.close());
// the theme keeps Escape from closing dialogs that are not its own
viewer.addEventListener("keydown", (event) => event.key === "Escape" && viewer.close());
document.body.append(viewer);

for (const figure of document.querySelectorAll("article img")) {
  const open = () => {
    large.src = figure.src;
    large.alt = figure.alt;
    viewer.showModal();
  };
  figure.classList.add("opens");
  figure.title = "Show in full size";
  figure.tabIndex = 0;
  figure.addEventListener("click", open);
  figure.addEventListener("keydown", (event) => event.key === "Enter" && open());
}

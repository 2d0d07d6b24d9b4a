// On a phone the cells of a row stand below each other: each gets the heading of its column.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table.docutils")) {
    const names = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    for (const row of table.rows)
      [...row.cells].forEach((cell, i) => {
        if (!cell.textContent.trim()) cell.classList.add("empty");
        else if (names[i]) cell.dataset.label = names[i];
      });
  }
});

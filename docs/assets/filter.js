// A field above each table in a block of class "filtered": rows that hold every word stay.
document.querySelectorAll(".filtered").forEach((block) => {
  const rows = [...block.querySelectorAll("tbody tr")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const label = document.createElement("label");
  label.className = "filter";
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = block.dataset.label;
  field.setAttribute("aria-label", block.dataset.label);
  const shown = document.createElement("output");
  const filter = () => {
    const words = field.value.toLowerCase().split(/\s+/);
    const kept = texts.map((text) => words.every((word) => text.includes(word)));
    rows.forEach((row, place) => (row.hidden = !kept[place]));
    shown.textContent = `${kept.filter(Boolean).length} of ${rows.length}`;
  };
  field.addEventListener("input", filter);
  label.append(field, shown);
  block.prepend(label);
  filter();
});

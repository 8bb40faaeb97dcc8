"use strict";
// Charts that answer to the pointer, and one class at a time. Without it a page is whole: each
// chart is there as a picture, all classes are there, and so they are on paper. Names are only
// ever written as text.
(() => {
  const HIGH = 0.66; // height by width, and of a narrow chart
  const NARROW = 0.85;
  const HINT = "Point at a mark for its value. Ctrl and the wheel zoom, dragging moves, a double click goes back.";

  function size(chart) {
    const width = Math.max(200, Math.floor(chart.clientWidth));
    return { width, height: Math.round(width * (width < 400 ? NARROW : HIGH)) };
  }

  function fitted(chart, view) {
    new ResizeObserver(() => {
      const { width, height } = size(chart);
      if (chart.clientWidth && width !== view.width()) view.width(width).height(height).runAsync();
    }).observe(chart);
  }

  // an entry of the legend beside a chart lets its line stand out; a second time: all alike again
  function choosable(chart, view) {
    const entries = [...(chart.closest("figure") ?? chart).querySelectorAll(".legend li")];
    if (entries.length < 2) return;
    const buttons = entries.map((entry) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...entry.childNodes);
      entry.append(button);
      return button;
    });
    let chosen = -1;
    function show() {
      buttons.forEach((one, number) => one.setAttribute("aria-pressed", number === chosen));
      view.signal("chosen", chosen).runAsync();
    }
    buttons.forEach((button, number) =>
      button.addEventListener("click", () => {
        chosen = chosen === number ? -1 : number;
        show();
      }),
    );
    show();
  }

  async function draw(chart) {
    const specification = JSON.parse(chart.querySelector("script").textContent);
    const stage = document.createElement("div");
    stage.className = "interactive";
    chart.append(stage);
    try {
      const { view } = await window.vegaEmbed(stage, Object.assign(specification, size(chart)), {
        ast: true, // interpreted: the page's policy forbids code made of text
        actions: false,
        defaultStyle: false,
        renderer: "svg",
        tooltip: { disableDefaultStyle: true },
      });
      chart.classList.add("drawn");
      fitted(chart, view);
      choosable(chart, view);
      hinted(chart);
    } catch {
      stage.remove(); // the picture stays
    }
  }

  function hinted(chart) {
    const hint = document.createElement("p");
    hint.className = "hint";
    hint.textContent = HINT;
    (chart.closest("figure") ?? chart).append(hint);
  }

  // ---- one class at a time
  function switchable(panel) {
    const blocks = [...panel.parentElement.querySelectorAll(":scope > .class-block")];
    const select = panel.querySelector("select");
    if (blocks.length < 2) return;
    for (const block of blocks) {
      const option = document.createElement("option");
      option.textContent = block.dataset.name;
      select.append(option);
    }
    const parts = [...blocks, ...panel.parentElement.querySelectorAll(".class-part")];
    function show() {
      const name = blocks[select.selectedIndex - 1]?.dataset.name;
      for (const part of parts) {
        part.classList.toggle("unchosen", name !== undefined && part.dataset.name !== name);
      }
    }
    select.addEventListener("change", show);
    panel.hidden = false;
    show();
  }

  document.querySelectorAll(".class-switch").forEach(switchable);
  const near = new IntersectionObserver(
    (seen) =>
      seen.filter((one) => one.isIntersecting).forEach((one) => {
        near.unobserve(one.target);
        draw(one.target);
      }),
    { rootMargin: "200px" },
  );
  document.querySelectorAll(".chart").forEach((chart) => near.observe(chart));
})();

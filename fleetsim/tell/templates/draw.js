// Draws the figures in the page's own colours, and again when the reader's light changes.
(function () {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  // Wherever a figure says var(--name), the style sheet's colour of that name.
  const resolved = (value) => {
    if (typeof value === "string") return value.replace(/^var\(--([a-z0-9-]+)\)$/, (_, name) => colour(name));
    if (Array.isArray(value)) return value.map(resolved);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, below]) => [key, resolved(below)]));
  };
  const coloured = (trace) => {
    const t = resolved(trace), own = colour((t.meta && t.meta.colour) || "accent");
    if (t.line) t.line.color = own;
    if (t.marker) {
      t.marker.color = own;
      t.marker.line = { ...t.marker.line, color: own };
    }
    t.textfont = { ...t.textfont, color: colour("ink") };
    return t;
  };
  const dressed = (given) => {
    const layout = resolved(given);
    layout.font = { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("ink") };
    layout.hoverlabel = { bgcolor: colour("paper"), bordercolor: colour("line"), font: { color: colour("ink") } };
    for (const name of Object.keys(layout).filter((key) => /^[xy]axis/.test(key))) {
      Object.assign(layout[name], {
        gridcolor: colour("grid"), linecolor: colour("line"), tickcolor: colour("line"), zerolinecolor: colour("quiet"),
      });
      if (layout[name].title) layout[name].title.font = { ...layout[name].title.font, color: colour("quiet") };
    }
    for (const shape of layout.shapes || []) {
      if (shape.type === "rect" && !shape.fillcolor) shape.fillcolor = colour("grid");
    }
    return layout;
  };
  const settings = { displayModeBar: false, responsive: true };
  // A legend that breaks into several rows, as on a phone, adds its height instead of taking it from the plot.
  const roomy = (place) => {
    const legend = place.querySelector(".legend");
    const more = legend ? legend.getBoundingClientRect().height - 30 : 0;
    if (more <= 0 || place.dataset.roomy) return undefined;
    place.dataset.roomy = "yes";
    place.style.height = place.getBoundingClientRect().height + more + "px";
    return Plotly.Plots.resize(place);
  };
  const draw = async () => {
    await Promise.all(Object.entries(figures).map(([id, figure]) =>
      Plotly.react(document.getElementById(id + "-chart"), figure.data.map(coloured), dressed(figure.layout), settings)));
    await Promise.all(Object.keys(figures).map((id) => roomy(document.getElementById(id + "-chart"))));
    document.documentElement.dataset.drawn = "yes";
  };
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();

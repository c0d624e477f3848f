// Values under a pointer, a finger or the arrow keys, and legends that switch what they name.
(() => {
  const tip = document.body.appendChild(document.createElement("div"));
  tip.className = "tip";
  tip.setAttribute("role", "status");
  tip.hidden = true;
  const number = (value) => value.toLocaleString("en", { maximumSignificantDigits: 4 });
  const hide = () => { tip.hidden = true; document.querySelector(".plot .at")?.remove(); };
  // The browser's own tooltips would stand beside ours.
  const titled = (plot) => plot.marked ??= [...plot.querySelectorAll("title")].map((title) => {
    const mark = title.parentNode;
    mark.dataset.said = title.textContent;
    mark.setAttribute("aria-label", title.textContent);
    title.remove();
    return mark;
  });
  const along = (plot, x) => {
    const [low, high] = plot.dataset.ends.split(" ").map(Number);
    const value = "log" in plot.dataset ? low * (high / low) ** x : low + (high - low) * x;
    return "date" in plot.dataset ? new Date(value * 1e3).toISOString().slice(5, 19).replace("T", " ") : number(value);
  };
  const lines = (plot) => [...plot.querySelectorAll("[data-y]:not(.off)")];
  // What the lines of a plot say at a share of its width: steps the last value, others the nearest.
  const read = (plot, x) => lines(plot).map((line) => {
    line.xs ??= line.dataset.x.split(" ").map(Number);
    line.ys ??= line.dataset.y.split("|");
    let best = -1;
    line.xs.forEach((at, i) => {
      const nearer = "steps" in line.dataset ? at <= 1000 * x + 0.5 : best < 0 || Math.abs(at - 1000 * x) < Math.abs(line.xs[best] - 1000 * x);
      if (nearer) best = i;
    });
    return line.ys[best] ? `${line.dataset.name}: ${line.ys[best]}` : "";
  }).filter(Boolean);
  const show = (x, y, texts) => {
    if (!texts.length) return hide();
    tip.replaceChildren(...texts.map((text) => Object.assign(document.createElement("div"), { textContent: text })));
    tip.hidden = false;
    tip.style.left = Math.max(4, Math.min(x + 12, innerWidth - tip.offsetWidth - 8)) + scrollX + "px";
    tip.style.top = (y - tip.offsetHeight - 12 < 4 ? y + 16 : y - tip.offsetHeight - 12) + scrollY + "px";
  };
  // Of a path of many spans, the one under the pointer: its two ends.
  const ends = (path, x) => [...path.getAttribute("d").matchAll(/M(\S+) \S+?h([\d.]+)/g)]
    .map(([, a, wide]) => [a / 1000, (+a + +wide) / 1000]).find(([a, b]) => a <= x && x <= b);
  const say = (plot, x, clientX, clientY, mark) => {
    document.querySelector(".plot .at")?.remove();
    const span = mark && plot.dataset.ends && mark.matches(".span") && ends(mark, x);
    if (mark) return show(clientX, clientY, [mark.dataset.said, ...(span ? [`${along(plot, span[0])} to ${along(plot, span[1])}`] : [])]);
    const texts = x >= 0 && x <= 1 ? read(plot, x) : [];
    if (texts.length) {
      const rule = plot.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "line"));
      for (const [key, value] of Object.entries({ class: "at", x1: `${100 * x}%`, x2: `${100 * x}%`, y2: "100%" })) rule.setAttribute(key, value);
    }
    show(clientX, clientY, texts.length ? [along(plot, x), ...texts] : []);
  };
  const pointed = (event) => {
    const plot = event.target.closest?.("svg.plot[tabindex]");
    if (!plot) return hide();
    const box = plot.getBoundingClientRect();
    let mark = (titled(plot), event.target.closest("[data-said]"));
    if (!mark && !lines(plot).length) {
      const far = (m) => { const b = m.getBoundingClientRect(); return Math.hypot(b.x + b.width / 2 - event.clientX, b.y + b.height / 2 - event.clientY); };
      mark = plot.querySelector(".span") ? null : plot.marked.filter((m) => !m.closest(".off")).sort((a, b) => far(a) - far(b))[0];
      if (mark && far(mark) > 40) mark = null;
    }
    say(plot, (event.clientX - box.left) / box.width, event.clientX, event.clientY, mark);
  };
  for (const kind of ["pointermove", "pointerdown"]) document.addEventListener(kind, pointed);
  document.addEventListener("keydown", (event) => {
    const plot = document.activeElement?.closest?.("svg.plot[tabindex]");
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") return hide();
    if (!plot || !step) return;
    event.preventDefault();
    const marks = titled(plot).filter((m) => !m.closest(".off")), of = lines(plot)[0];
    const n = of ? of.dataset.x.split(" ").length : marks.length;
    plot.place = Math.max(0, Math.min(n - 1, (plot.place ?? (step > 0 ? -1 : n)) + step));
    const box = plot.getBoundingClientRect(), mark = of ? null : marks[plot.place];
    const at = mark ? mark.getBoundingClientRect() : box, x = of ? of.dataset.x.split(" ")[plot.place] / 1000 : 0;
    say(plot, x, mark ? at.x + at.width / 2 : box.left + x * box.width, at.top, mark);
  });
  document.addEventListener("focusout", hide);
  document.addEventListener("click", (event) => {
    const button = event.target.closest(".legend button");
    if (!button) return;
    const shown = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", shown);
    for (const mark of button.closest(".chart").querySelectorAll(`.k${button.dataset.k}`)) mark.classList.toggle("off", !shown);
  });
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
  document.documentElement.dataset.drawn = "yes";
})();

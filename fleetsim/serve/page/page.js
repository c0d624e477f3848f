"use strict";
// The page's state is what stands behind "#": what the job starts from, and the options that were moved.
const WHOLE_MS = 500; // without a move, until all of the answer is asked for
const $ = (id) => document.getElementById(id);
let state = { start: null, options: {} };
let form = null, rows = {}, turn = 0, busy = false, again = false, waiting = null;

const packed = (job) => btoa(String.fromCharCode(...new TextEncoder().encode(JSON.stringify(job))))
  .replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const unpacked = (text) => JSON.parse(new TextDecoder().decode(
  Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0))));

function heard() {
  const said = new URLSearchParams(location.hash.slice(1));
  try {
    const job = said.has("job") ? unpacked(said.get("job")) : { start: said.get("start"), options: {} };
    for (const [name, value] of said) if (name !== "job" && name !== "start") job.options[name] = typed(rows[name]?.field, value);
    state = { start: job.start ?? null, options: job.options ?? {}, name: job.name };
  } catch {
    state = { start: null, options: {} };
    $("read").textContent = "the link is damaged: this is a new job";
  }
}

function hash() {
  if (state.start !== null && typeof state.start === "object") return "job=" + packed(state);
  const said = new URLSearchParams(Object.entries(state.options));
  if (state.start) said.set("start", state.start);
  return said.toString();
}

function made(tag, attributes = {}, ...inside) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...inside);
  return node;
}

// A law of turns is text, and so is what has no slider; a link may carry settings that have no row.
const typed = (field, text) => field?.low === null || text === "" || isNaN(text) ? text : Number(text);
const whole = (field, value) => field.whole ? Math.round(value) : Number(value.toPrecision(3));
const at = (field, value) => 1000 * Math.log(value / field.low) / Math.log(field.high / field.low);
const of = (field, place) => whole(field, field.low * (field.high / field.low) ** (place / 1000));

function drawn() {
  const panels = {};
  for (const field of form.fields) {
    const box = made("input", { name: field.name, "aria-label": field.words, placeholder: field.default });
    const row = made("label", { class: "row" }, field.words, box);
    rows[field.name] = { field, row, box };
    if (field.low === null) {
      box.setAttribute("list", "of-" + field.name);
      row.append(made("datalist", { id: "of-" + field.name }, ...field.choices.map((c) => made("option", { value: c }))));
    } else {
      box.inputMode = "decimal";
      const slider = made("input", { type: "range", min: 0, max: 1000, "aria-label": field.words, name: field.name + "-slider" });
      slider.addEventListener("input", () => { box.value = of(field, Number(slider.value)); moved(field, box.value); });
      row.append(slider);
      rows[field.name].slider = slider;
    }
    box.addEventListener("change", () => moved(field, box.value.trim()));
    panels[field.panel] ??= $("fields").appendChild(made("fieldset", {}, made("legend", {}, field.panel)));
    panels[field.panel].append(row);
  }
  $("start").append(made("option", { value: "" }, "the defaults"), ...form.presets.map((p) => made("option", { value: p }, p)));
  $("framework").append(...form.frameworks.map((f) => made("option", { value: f }, "a configuration of " + f)));
  $("version").textContent = "fleetsim " + form.version;
}

function shown(values) {
  for (const [name, { field, row, box, slider }] of Object.entries(rows)) {
    const value = state.options[name] ?? values?.[name] ?? null;
    row.classList.toggle("assumed", !(name in state.options));
    if (document.activeElement !== box) box.value = value ?? "";
    if (slider && document.activeElement !== slider) slider.value = value === null ? 500 : at(field, value);
  }
  const mapping = state.start !== null && typeof state.start === "object";
  $("start").querySelector("[data-own]")?.remove();
  if (mapping) $("start").append(made("option", { value: "own", "data-own": "" }, state.name ?? "your own file"));
  $("start").value = mapping ? "own" : state.start?.replace("presets/", "") ?? "";
}

function moved(field, text) {
  if (text === "") delete state.options[field.name]; else state.options[field.name] = typed(field, text);
  changed();
}

function changed() {
  history.replaceState(null, "", "#" + hash());
  turn += 1;
  clearTimeout(waiting);
  if (busy) again = true; else quick();
}

async function asked(what, body = { start: state.start, options: state.options }) {
  const response = await fetch(what, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  return response.json();
}

async function quick() {
  busy = true;
  document.body.classList.add("waiting");
  const mine = turn;
  let found;
  try { found = await asked("count"); } catch { found = { problems: [{ text: "the server does not answer" }] }; }
  busy = false;
  if (again) { again = false; return quick(); }
  if (mine !== turn) return;
  document.body.classList.remove("waiting");
  told(found);
  if (!found.problems) waiting = setTimeout(() => full(mine), WHOLE_MS);
}

async function full(mine) {
  $("state").textContent = "working out what doubt about the inputs makes of it, and what would help most …";
  const found = await asked("whole").catch(() => null);
  if (mine !== turn) return;
  $("state").textContent = found ? "" : "the server does not answer";
  if (found) told(found);
}

function listed(id, items) {
  $(id).hidden = !items?.length;
  $(id).querySelector("ul").replaceChildren(...(items ?? []).map((text) => made("li", {}, text)));
}

function told(found) {
  listed("wrong", found.problems?.map((p) => p.text));
  if (found.problems) return shown();
  shown(found.values);
  listed("warned", found.warnings);
  $("answer").textContent = found.answer;
  document.title = found.answer;
  const tiles = found.tiles.map(({ title, figure, beside }) =>
    made("div", {}, made("dt", {}, title), made("dd", {}, figure, made("small", {}, beside))));
  $("tiles").style.setProperty("--all", tiles.length);
  $("tiles").style.setProperty("--half", Math.ceil(tiles.length / 2));
  $("tiles").replaceChildren(...tiles);
  $("lines").replaceChildren(...found.lines.map(([label, said]) => made("div", {}, made("dt", {}, label), made("dd", {}, said))));
  $("command").textContent = found.command;
  $("curves").innerHTML = found.curves; // drawn by the server, every word in it escaped
}

async function sent() {
  const file = $("file").files[0];
  if (!file) return;
  $("read").textContent = `reading ${file.name} …`;
  const query = new URLSearchParams({ name: file.name, framework: $("framework").value });
  const response = await fetch("read?" + query, { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: file });
  const found = await response.json().catch(() => ({ problems: [{ text: "the server does not answer" }] }));
  $("file").value = "";
  $("read").textContent = (found.problems?.map((p) => p.text) ?? found.notes).join("\n");
  if (found.problems) return;
  state = { start: found.start, options: {}, name: found.name };
  changed();
}

async function begin() {
  form = await (await fetch("form")).json();
  drawn();
  heard();
  $("form").addEventListener("submit", (event) => event.preventDefault());
  $("start").addEventListener("change", () => { state = { start: $("start").value || null, options: {} }; changed(); });
  $("file").addEventListener("change", sent);
  $("reset").addEventListener("click", () => { state = { start: null, options: {} }; changed(); });
  $("link").addEventListener("click", async () => {
    await navigator.clipboard?.writeText(location.href).catch(() => {});
    $("link").textContent = "Copied";
    setTimeout(() => { $("link").textContent = "Copy a link to this job"; }, 1500);
  });
  addEventListener("hashchange", () => { heard(); changed(); });
  changed();
}
begin();

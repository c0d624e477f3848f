// Reads a trace with chrome://tracing's own importer, shows it, and returns what it found. In the viewer's page.
(base64) => {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const model = new tr.Model();
  const options = new tr.importer.ImportOptions();
  options.shiftWorldToZero = false;
  new tr.importer.Import(model, options).importTraces([bytes.buffer]);
  const slices = [];
  const counters = [];
  for (const process of Object.values(model.processes)) {
    for (const thread of Object.values(process.threads)) {
      for (const slice of thread.sliceGroup.slices) {
        slices.push([process.name, thread.name, slice.title, slice.start, slice.duration]);
      }
    }
    for (const counter of Object.values(process.counters)) {
      counters.push([process.name, counter.name, counter.series.map((series) => series.samples.map((s) => s.value))]);
    }
  }
  const flows = model.flowEvents.map((flow) => [flow.category, flow.title, flow.startSlice?.title, flow.endSlice?.title]);
  const container = document.createElement("track-view-container");
  container.id = "track_view_container";
  const view = document.createElement("tr-ui-timeline-view");
  view.track_view_container = container;
  Polymer.dom(view).appendChild(container);
  document.body.appendChild(view);
  view.globalMode = true;
  view.model = model;
  return { slices, counters, flows, warnings: model.importWarnings.map((warning) => warning.message) };
};

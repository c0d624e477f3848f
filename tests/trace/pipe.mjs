// Perfetto's trace processor as a pipe: its RPC stream in on stdin, out on stdout. usage: node pipe.mjs ENGINE_FOLDER
//
// The engine is the script of a web worker: it loads its WebAssembly by a synchronous request and is then given a
// message port. Here it runs in a context that has just that much of a worker.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createContext, runInContext } from "node:vm";

const folder = process.argv[2];

class Request {
  open() {}
  send() {
    const bytes = readFileSync(join(folder, "trace_processor.wasm"));
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
  }
}

// The engine prefers a build with 64-bit memory where that is known; there is none in the folder.
const only32 = {
  ...Object.fromEntries(Object.getOwnPropertyNames(WebAssembly).map((name) => [name, WebAssembly[name]])),
  Module: class extends WebAssembly.Module {
    constructor(bytes) {
      const probe = bytes.byteLength < 64 && bytes[8] === 5 && bytes[11] === 4; // a module that is one 64-bit memory
      if (probe) throw new WebAssembly.CompileError("no 64-bit memory here");
      super(bytes);
    }
  },
};
const log = (...words) => words[0]?.includes?.("__syscall_mprotect") || process.stderr.write(`${words.join(" ")}\n`);
const scope = {
  console: { log, warn: log, error: log, debug: log, info: log },
  location: { href: "file:///" },
  performance,
  setTimeout,
  clearTimeout,
  crypto,
  TextDecoder,
  TypeError,
  URL,
  Uint8Array,
  WebAssembly: only32,
  XMLHttpRequest: Request,
  WorkerGlobalScope: class {},
};
scope.self = scope;
createContext(scope);
runInContext(readFileSync(join(folder, "engine_bundle.node.js"), "utf8"), scope);
for (let turn = 0; turn < 20; turn++) await new Promise((done) => setImmediate(done)); // it wakes up asynchronously
const port = { postMessage: (data) => process.stdout.write(data) };
scope.onmessage({ data: port });
process.stdin.on("data", (data) => port.onmessage({ data: new Uint8Array(data) }));

// A whole host in Node on the package vscode-jsonrpc, which frames with Content-Length headers.
//
//   npm install vscode-jsonrpc
//   SIDECAR_MODEL=openai/gpt-5.2 node scripts/examples/jsonrpc_host.mjs "What time is it in Kyiv?"
//
// Arguments after the prompt are the command of the daemon, by default `sidecar serve --stdio`. Ctrl-C ends the turn.

import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import path from "node:path";

// The package is looked for where the host runs, then beside this file.
const require = createRequire(path.join(process.cwd(), "host.js"));
const { CancellationTokenSource, ErrorCodes, StreamMessageReader, StreamMessageWriter, createMessageConnection } =
  require("vscode-jsonrpc/node");

const [prompt, command = "sidecar", ...rest] = process.argv.slice(2);
if (!prompt) {
  console.error("usage: node jsonrpc_host.mjs PROMPT [DAEMON [ARGUMENT...]]");
  process.exit(2);
}
const args = process.argv.length > 3 ? rest : ["serve", "--stdio"];
const daemon = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const connection = createMessageConnection(
  new StreamMessageReader(daemon.stdout),
  new StreamMessageWriter(daemon.stdin),
);

connection.onRequest("tool.call", ({ name, arguments: given }) =>
  name === "current_time"
    ? { content: new Date().toLocaleString("sv-SE", { timeZone: given.zone }) }
    : { content: `there is no tool ${name}`, is_error: true },
);
connection.onRequest("approval.request", () => ({ outcome: "reject", reason: "this example allows nothing" }));
connection.onNotification("agent.chat.event", ({ event }) => {
  if (event.type === "text_delta") process.stdout.write(event.text);
  if (event.type === "tool_call_started") console.error(`[${event.name} ${JSON.stringify(event.arguments)}]`);
});
connection.listen();

// The package leaves calls waiting when the daemon dies, so each one races with its end.
const ended = new Promise((_, reject) => {
  daemon.on("error", (error) => reject(new Error(`the daemon cannot be started: ${error.message}`)));
  daemon.on("close", (code, signal) => reject(new Error(`the daemon ended (${signal ?? code})`)));
});
ended.catch(() => {});
daemon.stdin.on("error", () => {});

function call(method, ...params) {
  const answer = connection.sendRequest(method, ...params);
  const written = (error) => (error.code === ErrorCodes.MessageWriteError ? ended : Promise.reject(error));
  return Promise.race([answer.catch(written), ended]);
}

// Cancelling the call sends $/cancelRequest, and the daemon ends the turn.
const cancel = new CancellationTokenSource();
process.on("SIGINT", () => cancel.cancel());

try {
  await call("system.initialize", {
    protocol_version: 1,
    client: { name: "vscode-jsonrpc-example", version: "1" },
    capabilities: { tools: true, approvals: true },
  });
  const { session } = await call("agent.session.create", {
    cwd: process.cwd(),
    tools: [
      {
        name: "current_time",
        description: "The current time in a time zone.",
        parameters: { type: "object", properties: { zone: { type: "string" } }, required: ["zone"] },
      },
    ],
  });
  const result = await call(
    "agent.chat.send",
    { session_id: session.session_id, content: prompt, wait: true },
    cancel.token,
  );
  process.stdout.write("\n");
  if (result.error) console.error(`${result.error.reason}: ${result.error.message}`);
  process.exitCode = result.stop_reason === "end_turn" ? 0 : 1;
} catch (error) {
  console.error(error.data?.hint ? `${error.message} (${error.data.hint})` : error.message);
  process.exitCode = error.code === -32800 ? 130 : 1;
} finally {
  connection.dispose();
  daemon.stdin.end(); // the daemon ends with its stdin
}

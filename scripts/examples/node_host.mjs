// A whole host in Node without any package: child_process and newline-delimited JSON-RPC.
//
//   SIDECAR_MODEL=openai/gpt-5.2 node scripts/examples/node_host.mjs "What time is it in Kyiv?"
//
// Arguments after the prompt are the command of the daemon, by default `sidecar serve --stdio`.

import { spawn } from "node:child_process";

const [prompt, command = "sidecar", ...rest] = process.argv.slice(2);
if (!prompt) {
  console.error('usage: node node_host.mjs PROMPT [DAEMON [ARGUMENT...]]');
  process.exit(2);
}
const args = process.argv.length > 3 ? rest : ["serve", "--stdio"];
const daemon = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });

// ---------------------------------------------------------------- JSON-RPC, both ways

let nextId = 1;
let ended = null; // why there will be no more answers
const waiting = new Map();

function send(message) {
  daemon.stdin.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n");
}

function call(method, params = {}) {
  const id = nextId++;
  if (ended) return Promise.reject(ended);
  return new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject });
    send({ id, method, params });
  });
}

async function serve({ id, method, params }) {
  const handler = requests[method];
  if (!handler) {
    send({ id, error: { code: -32601, message: `this host does not answer ${method}` } });
    return;
  }
  try {
    send({ id, result: await handler(params) });
  } catch (error) {
    send({ id, error: { code: -32000, message: error.name } });
  }
}

// Frames end with \n and nothing else; JSON may hold U+2028 inside strings, where some line readers break.
let buffered = Buffer.alloc(0);
daemon.stdout.on("data", (data) => {
  buffered = Buffer.concat([buffered, data]);
  for (let end; (end = buffered.indexOf(10)) >= 0; ) {
    const line = buffered.subarray(0, end).toString("utf8");
    buffered = buffered.subarray(end + 1);
    if (line.trim()) receive(JSON.parse(line));
  }
});

function receive(message) {
  if (message.method && message.id !== undefined) serve(message);
  else if (message.method) notifications[message.method]?.(message.params);
  else if (waiting.has(message.id)) {
    const { resolve, reject } = waiting.get(message.id);
    waiting.delete(message.id);
    if (message.error) reject(Object.assign(new Error(message.error.message), message.error));
    else resolve(message.result);
  }
}

// A daemon that cannot be started or dies leaves no call waiting. `close` comes when all that it wrote has been read.
function end(error) {
  ended ??= error;
  for (const { reject } of waiting.values()) reject(ended);
  waiting.clear();
}
daemon.on("error", (error) => end(new Error(`the daemon cannot be started: ${error.message}`)));
daemon.on("close", (code, signal) => end(new Error(`the daemon ended (${signal ?? code})`)));
daemon.stdin.on("error", () => {}); // a write that came too late; `close` tells why

// ---------------------------------------------------------------- what the daemon asks and tells

const tools = {
  current_time({ zone }) {
    try {
      return new Date().toLocaleString("sv-SE", { timeZone: zone });
    } catch {
      return { content: `There is no time zone ${zone}.`, is_error: true };
    }
  },
};

const requests = {
  "tool.call": async ({ name, arguments: given }) => {
    const answer = await tools[name](given);
    return typeof answer === "string" ? { content: answer } : answer;
  },
  "approval.request": ({ name }) => ({ outcome: "reject", reason: `this example allows nothing, not even ${name}` }),
};

const notifications = {
  "agent.chat.event": ({ event }) => {
    if (event.type === "text_delta") process.stdout.write(event.text);
    if (event.type === "tool_call_started") console.error(`[${event.name} ${JSON.stringify(event.arguments)}]`);
  },
};

// ---------------------------------------------------------------- the conversation

try {
  await call("system.initialize", {
    protocol_version: 1,
    client: { name: "node-example", version: "1" },
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
  const result = await call("agent.chat.send", { session_id: session.session_id, content: prompt, wait: true });
  process.stdout.write("\n");
  if (result.error) console.error(`${result.error.reason}: ${result.error.message}`);
  process.exitCode = result.stop_reason === "end_turn" ? 0 : 1;
} catch (error) {
  console.error(error.data?.hint ? `${error.message} (${error.data.hint})` : error.message);
  process.exitCode = 1;
} finally {
  daemon.stdin.end(); // the daemon ends with its stdin
}

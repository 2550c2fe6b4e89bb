// A `quire serve` on a free port for one test file. QUIRE_BINARY names the program.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

export const kModel = 'target-q8_0';  // the bundled model, by its file's name
export const kKey = 'a-key-of-the-tests';
export const kContext = 1024;  // tokens that the bundled model sees
const kHeaders = { Authorization: `Bearer ${kKey}`, 'Content-Type': 'application/json' };

// A key, and a template that knows tools: the bundled model's own does not.
const kUsualFlags = ['--api-key', kKey,
  '--chat-template', fileURLToPath(new URL('./tools.jinja', import.meta.url))];

// Runs the server. Resolves once it is ready.
export async function startServer(flags = kUsualFlags) {
  const args = ['serve', '--port', '0', '--json', '--threads', '1', ...flags];
  const child = spawn(process.env.QUIRE_BINARY, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = new Promise((resolve) => child.once('exit', (code, signal) => {
    resolve({ code, signal });
  }));
  // A test that breaks off leaves no server behind.
  process.once('exit', () => child.kill('SIGKILL'));
  for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));
  child.once('error', (error) => assert.fail(`quire serve does not start: ${error.message}`));
  return new Server(child, ended, (await announcement(child)).url);
}

// The announcement is the whole of what the server writes to stdout.
async function announcement(child) {
  let text = '';
  for await (const piece of child.stdout) {
    text += piece;
    try {
      return JSON.parse(text);
    } catch {
      // not all of it yet
    }
  }
  assert.fail(`quire serve ended before it was ready; it said: ${text}`);
}

class Server {
  #child;
  #ended;

  constructor(child, ended, url) {
    this.#child = child;
    this.#ended = ended;
    this.url = url;
    this.openai = `${url}/v1`;  // what clients of the OpenAI API call the base URL
  }

  // The value of an unlabelled metric, or of the first series of a labelled one.
  async metric(name) {
    const text = await (await fetch(`${this.url}/metrics`)).text();
    const line = text.split('\n').find((each) => each.startsWith(`${name}{`));
    assert.ok(line, `${name} is not among the metrics`);
    return Number(line.slice(line.lastIndexOf(' ') + 1));
  }

  // What is computed or waits.
  async requests() {
    const answer = await fetch(`${this.openai}/requests`, { headers: kHeaders });
    return (await answer.json()).data;
  }

  async post(path, body) {
    const answer = await fetch(this.url + path, {
      method: 'POST', headers: kHeaders, body: JSON.stringify(body),
    });
    assert.equal(answer.status, 200);
    return answer.json();
  }

  // Waits until nothing runs and no memory is held; fails if that takes 10 s.
  async waitUntilIdle() {
    let requests = [];
    let leased = 0;
    for (let i = 0; i < 500; ++i) {
      requests = await this.requests();
      leased = await this.metric('quire_kv_frames_leased');
      if (requests.length === 0 && leased === 0) return;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    assert.fail(`${leased} frames are held after 10 s by ${JSON.stringify(requests)}`);
  }

  // Ends it as Ctrl-C does; it must say goodbye by exit code 0 and leave nothing leased.
  async stop() {
    try {
      await this.waitUntilIdle();
    } finally {
      this.#child.kill('SIGINT');
    }
    assert.deepEqual(await this.#ended, { code: 0, signal: null });
  }
}

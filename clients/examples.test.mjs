// The examples of the documents, run as they stand there. Only the server's address differs, and
// the port that a command would listen at.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { startServer } from './server.mjs';

const run = promisify(execFile);
const kAddress = 'http://127.0.0.1:8000';
const kDocuments = ['README.md', 'docs/SERVING.md', 'docs/EVICTION.md'];

let server;
before(async () => {
  server = await startServer([]);
});
after(() => server.stop());

// Fenced blocks of a language: [{ text, where }], where as "README.md:40".
function blocksOf(language) {
  const blocks = [];
  for (const document of kDocuments) {
    const lines = readFileSync(join(process.env.QUIRE_SOURCE, document), 'utf8').split('\n');
    for (let i = 0; i < lines.length; ++i) {
      if (lines[i] !== `\`\`\`${language}`) continue;
      const end = lines.indexOf('```', i);
      blocks.push({ text: lines.slice(i + 1, end).join('\n'), where: `${document}:${i + 2}` });
      i = end;
    }
  }
  return blocks;
}

// Runs a script of the shell, in which `curl` fails where the server says no and `quire` is the
// program under test.
async function runShell(text, where) {
  const script = [
    'set -eu',
    'curl() { command curl -sS --fail-with-body "$@"; echo; }',
    'quire() { "$QUIRE_BINARY" "$@" --dump-config; }',  // reads every flag, and ends
    text.replaceAll(kAddress, server.url),
  ].join('\n');
  try {
    const { stdout } = await run('sh', ['-c', script], {
      env: { ...process.env, QUIRE_KEY: 'none' }, timeout: 60_000,
    });
    return stdout;
  } catch (error) {
    assert.fail(`${where}: ${error.message}\n${error.stdout}${error.stderr}`);
  }
}

test('every shell command of the documents works', async () => {
  const blocks = blocksOf('sh');
  assert.ok(blocks.filter(({ text }) => text.includes('curl ')).length >= 8);
  for (const { text, where } of blocks) {
    const output = await runShell(text, where);
    assert.ok(output.trim().length > 0, `${where} prints nothing`);
  }
});

test('every JavaScript program of the documents prints an answer', async () => {
  const blocks = blocksOf('js');
  assert.ok(blocks.length >= 2);
  for (const [i, { text, where }] of blocks.entries()) {
    const file = `example-${i}.mjs`;
    writeFileSync(file, text.replaceAll(kAddress, server.url));
    const { stdout } = await run('node', [file], { timeout: 60_000 });
    assert.ok(stdout.trim().length > 10, `${where} prints: ${stdout}`);
  }
});

test('the command that the server prints works as printed, without colours in a pipe', async () => {
  const child = spawn(process.env.QUIRE_BINARY, ['serve', '--port', '0', '--threads', '1'],
    { stdio: ['ignore', 'pipe', 'inherit'] });
  let announced = '';
  for await (const piece of child.stdout) {
    announced += piece;
    if (announced.endsWith('\n\n') && announced.includes('curl')) break;
  }
  try {
    assert.match(announced, /^http:\/\/127\.0\.0\.1:\d+\/v1 serves target-q8_0 /);
    assert.ok(!announced.includes('\u001b'));
    const output = await runShell(announced.slice(announced.indexOf('curl')), 'the announcement');
    assert.ok(JSON.parse(output).choices[0].text.length > 0);
  } finally {
    child.kill('SIGINT');
  }
});

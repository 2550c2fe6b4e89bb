// The `ai` package (Vercel's AI SDK) through @ai-sdk/openai-compatible.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, generateObject, generateText, stepCountIs, streamObject, streamText, tool }
  from 'ai';
import { z } from 'zod';
import { kContext, kKey, kModel, startServer } from './server.mjs';

let server;
let quire;
const provider = (apiKey) => createOpenAICompatible({
  name: 'quire', baseURL: server.openai, apiKey, supportsStructuredOutputs: true,
  includeUsage: true,
});
before(async () => {
  server = await startServer();
  quire = provider(kKey);
});
after(() => server.stop());

// Retries would hide an error, or repeat it.
const settings = () => ({ model: quire(kModel), maxRetries: 0 });

test('generateText answers and counts', async () => {
  const answer = await generateText({
    ...settings(), prompt: 'Tell me of the sea.', maxOutputTokens: 24, temperature: 0,
  });
  assert.ok(answer.text.length > 10);
  assert.equal(answer.finishReason, 'length');
  assert.equal(answer.usage.outputTokens, 24);
  assert.equal(answer.response.modelId, kModel);
});

test('a completion model goes on with a prompt', async () => {
  const answer = await generateText({
    model: quire.completionModel(kModel), maxRetries: 0, prompt: 'Once upon a time',
    maxOutputTokens: 12, temperature: 0,
  });
  assert.ok(answer.text.length > 0);
});

test('streamText gives the text of generateText in pieces', async () => {
  const params = {
    ...settings(), system: 'Be brief.', prompt: 'Tell me of the sea.', maxOutputTokens: 30, seed: 2,
  };
  const whole = await generateText(params);
  const stream = streamText(params);
  const pieces = [];
  for await (const piece of stream.textStream) pieces.push(piece);
  assert.equal(pieces.join(''), whole.text);
  assert.ok(pieces.length > 5, `${pieces.length} pieces are no stream`);
  assert.equal((await stream.usage).outputTokens, 30);
  assert.equal(await stream.finishReason, 'length');
});

const kPerson = z.object({
  name: z.string().max(20),
  age: z.number().int().min(0).max(120),
  trade: z.enum(['smith', 'sailor', 'king']),
  children: z.array(z.string().max(8)).max(2),
});

test('generateObject returns an object of the schema', async () => {
  const answer = await generateObject({
    ...settings(), schema: kPerson, prompt: 'Describe a person.', maxOutputTokens: 200, seed: 3,
  });
  kPerson.parse(answer.object);  // throws if it is not
  assert.equal(answer.finishReason, 'stop');
});

test('streamObject builds the same object bit by bit', async () => {
  const params = {
    ...settings(), schema: kPerson, prompt: 'Describe a person.', maxOutputTokens: 200, seed: 3,
  };
  const whole = await generateObject(params);
  const stream = streamObject(params);
  let partial = {};
  for await (partial of stream.partialObjectStream);
  assert.deepEqual(partial, whole.object);
  assert.deepEqual(await stream.object, whole.object);
});

// The first step must call, the second must answer.
const kRoundTrip = {
  prompt: 'How will the weather be?',
  toolChoice: 'required',
  stopWhen: stepCountIs(2),
  prepareStep: ({ stepNumber }) => (stepNumber > 0 ? { toolChoice: 'none' } : {}),
  maxOutputTokens: 80,
  seed: 4,
};
const weather = (calls) => tool({
  description: 'The weather of the coming days.',
  inputSchema: z.object({ days: z.number().int().min(1).max(9) }),
  execute: async ({ days }) => {
    calls.push(days);
    return { sky: 'clear' };
  },
});

test('a tool is called, its result goes back, and the second step answers', async () => {
  const calls = [];
  const answer = await generateText({
    ...settings(), ...kRoundTrip, tools: { weather: weather(calls) },
  });
  assert.ok(calls.length >= 1);
  assert.ok(calls.every((days) => days >= 1 && days <= 9));
  assert.equal(answer.steps.length, 2);
  assert.equal(answer.steps[0].finishReason, 'tool-calls');
  assert.equal(answer.steps[0].toolResults[0].output.sky, 'clear');
  assert.ok(answer.text.length > 0);
});

test('the same round trip works streamed', async () => {
  const calls = [];
  const stream = streamText({ ...settings(), ...kRoundTrip, tools: { weather: weather(calls) } });
  const seen = new Set();
  for await (const part of stream.fullStream) {
    assert.notEqual(part.type, 'error', `${part.error}`);
    seen.add(part.type);
  }
  assert.ok(calls.length >= 1);
  for (const type of ['tool-call', 'tool-result', 'text-delta']) assert.ok(seen.has(type), type);
});

test('an aborted stream frees what it held', async () => {
  const controller = new AbortController();
  const stream = streamText({
    ...settings(), prompt: 'Tell me of the sea.', maxOutputTokens: 900,
    abortSignal: controller.signal, providerOptions: { quire: { ignore_eos: true } },
  });
  let pieces = 0;
  for await (const part of stream.fullStream) {
    if (part.type === 'text-delta' && ++pieces === 5) controller.abort();
    if (part.type === 'abort') break;
  }
  assert.ok(pieces >= 5);
  await server.waitUntilIdle();
});

// Asks with one thing wrong; `check` sees the error.
async function refused(overrides, check) {
  await assert.rejects(generateText({ ...settings(), prompt: 'x', ...overrides }), (error) => {
    assert.ok(APICallError.isInstance(error), `${error}`);
    check(error);
    return true;
  });
}

test('a wrong key, a wrong model and a too long prompt are told apart', async () => {
  await refused({ model: provider('wrong')(kModel) }, (error) => {
    assert.equal(error.statusCode, 401);
  });
  await refused({ model: quire('gpt-none') }, (error) => {
    assert.equal(error.statusCode, 404);
    assert.match(error.message, new RegExp(kModel));  // the server's own sentence
  });
  await refused({ prompt: 'word '.repeat(3000) }, (error) => {
    assert.equal(error.statusCode, 400);
    assert.ok(!error.isRetryable);
    assert.match(error.message, new RegExp(`${kContext}`));
  });
});

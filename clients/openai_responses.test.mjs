// The official `openai` package against /v1/responses.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { kContext, kKey, kModel, startServer } from './server.mjs';

let server;
let client;
before(async () => {
  server = await startServer();
  client = new OpenAI({ baseURL: server.openai, apiKey: kKey, maxRetries: 0 });
});
after(() => server.stop());

const kQuestion = { model: kModel, input: 'Tell me of the sea.', max_output_tokens: 24,
  temperature: 0 };

test('a response has its text and counts its tokens', async () => {
  const response = await client.responses.create(kQuestion);
  assert.equal(response.object, 'response');
  assert.equal(response.model, kModel);
  assert.ok(response.output_text.length > 10);
  assert.equal(response.output[0].type, 'message');
  assert.equal(response.output[0].role, 'assistant');
  assert.equal(response.usage.output_tokens, 24);
  assert.equal(response.status, 'incomplete');
  assert.equal(response.incomplete_details.reason, 'max_output_tokens');
});

test('instructions and a list of messages are read', async () => {
  const response = await client.responses.create({
    ...kQuestion,
    instructions: 'Be brief.',
    input: [
      { role: 'user', content: [{ type: 'input_text', text: 'Hello.' }] },
      { role: 'assistant', content: 'Good day.' },
      { role: 'user', content: 'Tell me of the sea.' },
    ],
  });
  assert.ok(response.output_text.length > 0);
  assert.ok(response.usage.input_tokens > 15);
});

test('a streamed response is the response that is not streamed', async () => {
  const whole = await client.responses.create(kQuestion);
  const types = [];
  let text = '';
  let last = null;
  for await (const event of await client.responses.create({ ...kQuestion, stream: true })) {
    if (event.type === 'response.output_text.delta') text += event.delta;
    if (event.type !== types.at(-1)) types.push(event.type);
    last = event;
  }
  assert.equal(text, whole.output_text);
  assert.deepEqual(types, ['response.created', 'response.in_progress',
    'response.output_item.added', 'response.content_part.added', 'response.output_text.delta',
    'response.output_text.done', 'response.content_part.done', 'response.output_item.done',
    'response.incomplete']);
  assert.equal(last.response.usage.output_tokens, whole.usage.output_tokens);
});

test('the stream helper of the package assembles the same response', async () => {
  const whole = await client.responses.create(kQuestion);
  const response = await client.responses.stream(kQuestion).finalResponse();
  assert.equal(response.output[0].content[0].text, whole.output_text);
});

test('an aborted stream frees what it held', async () => {
  const stream = await client.responses.create({
    ...kQuestion, max_output_tokens: 900, temperature: 1, stream: true,
  });
  let deltas = 0;
  for await (const event of stream) {
    if (event.type === 'response.output_text.delta' && ++deltas === 3) break;
  }
  assert.equal(deltas, 3);
  await server.waitUntilIdle();
});

test('a wrong model and a too long prompt are told apart', async () => {
  await assert.rejects(client.responses.create({ ...kQuestion, model: 'gpt-none' }),
    (error) => error instanceof OpenAI.NotFoundError && error.message.includes(kModel));
  await assert.rejects(
    client.responses.create({ ...kQuestion, input: 'word '.repeat(3000) }),
    (error) => error instanceof OpenAI.BadRequestError && error.message.includes(`${kContext}`));
});

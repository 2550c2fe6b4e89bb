// Anthropic's own package against /v1/messages.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { kContext, kKey, kModel, startServer } from './server.mjs';

let server;
let client;
const connect = (apiKey) => new Anthropic({ baseURL: server.url, apiKey, maxRetries: 0 });
before(async () => {
  server = await startServer();
  client = connect(kKey);
});
after(() => server.stop());

const kQuestion = {
  model: kModel, max_tokens: 24, temperature: 0, system: 'Be brief.',
  messages: [{ role: 'user', content: 'Tell me of the sea.' }],
};

test('a message is answered with a text block and counted tokens', async () => {
  const message = await client.messages.create(kQuestion);
  assert.equal(message.type, 'message');
  assert.equal(message.role, 'assistant');
  assert.equal(message.model, kModel);
  assert.deepEqual(message.content.map((block) => block.type), ['text']);
  assert.ok(message.content[0].text.length > 10);
  assert.equal(message.stop_reason, 'max_tokens');
  assert.equal(message.usage.output_tokens, 24);
  assert.ok(promptTokens(message) > 5);
});

test('a stop sequence is named and left out', async () => {
  const whole = (await client.messages.create(kQuestion)).content[0].text;
  const stop = whole.slice(8, 12);
  const message = await client.messages.create({ ...kQuestion, stop_sequences: [stop] });
  assert.equal(message.stop_reason, 'stop_sequence');
  assert.equal(message.stop_sequence, stop);
  assert.equal(message.content[0].text, whole.split(stop)[0]);
});

test('countTokens says how long a message is before it is sent', async () => {
  const { model, system, messages } = kQuestion;
  const { input_tokens: counted } = await client.messages.countTokens({ model, system, messages });
  assert.equal(counted, promptTokens(await client.messages.create(kQuestion)));
});

test('text blocks and turns are read', async () => {
  const message = await client.messages.create({
    ...kQuestion,
    system: [{ type: 'text', text: 'Be brief.' }],
    messages: [
      { role: 'user', content: [{ type: 'text', text: 'Hello.' }] },
      { role: 'assistant', content: [{ type: 'text', text: 'Good day.' }] },
      { role: 'user', content: 'Tell me of the sea.' },
    ],
  });
  assert.ok(message.content[0].text.length > 0);
});

test('a streamed message is the message that is not streamed', async () => {
  const whole = await client.messages.create(kQuestion);
  const stream = client.messages.stream(kQuestion);
  const pieces = [];
  stream.on('text', (piece) => pieces.push(piece));
  const message = await stream.finalMessage();
  assert.equal(pieces.join(''), whole.content[0].text);
  assert.ok(pieces.length > 5, `${pieces.length} pieces are no stream`);
  assert.equal(message.stop_reason, whole.stop_reason);
  assert.equal(message.usage.output_tokens, whole.usage.output_tokens);
});

test('the events of a stream come in the documented order', async () => {
  const types = [];
  for await (const event of await client.messages.create({ ...kQuestion, stream: true })) {
    if (event.type !== 'ping' && event.type !== types.at(-1)) types.push(event.type);
  }
  assert.deepEqual(types, ['message_start', 'content_block_start', 'content_block_delta',
    'content_block_stop', 'message_delta', 'message_stop']);
});

// Of the prompt: what was computed and what came from the cache are counted apart.
const promptTokens = ({ usage }) => usage.input_tokens + (usage.cache_read_input_tokens ?? 0);

const kWeather = {
  name: 'weather',
  description: 'The weather of the coming days.',
  input_schema: {
    type: 'object',
    properties: { days: { type: 'integer', minimum: 1, maximum: 9 } },
    required: ['days'],
    additionalProperties: false,
  },
};
const kCall = {
  ...kQuestion, max_tokens: 80, tools: [kWeather], tool_choice: { type: 'tool', name: 'weather' },
};

test('a forced tool is used, its result goes back, and an answer follows', async () => {
  const used = await client.messages.create(kCall);
  assert.equal(used.stop_reason, 'tool_use');
  const use = used.content.find((block) => block.type === 'tool_use');
  assert.equal(use.name, 'weather');
  assert.ok(use.input.days >= 1 && use.input.days <= 9);
  const answer = await client.messages.create({
    ...kQuestion,
    tools: [kWeather],
    messages: [
      ...kQuestion.messages,
      { role: 'assistant', content: used.content },
      { role: 'user',
        content: [{ type: 'tool_result', tool_use_id: use.id, content: 'clear sky' }] },
    ],
  });
  assert.equal(answer.content[0].type, 'text');
  assert.ok(promptTokens(answer) > promptTokens(used));
});

test('a streamed tool use has the input of the one that is not streamed', async () => {
  const whole = await client.messages.create(kCall);
  const streamed = await client.messages.stream(kCall).finalMessage();
  const use = streamed.content.find((block) => block.type === 'tool_use');
  assert.deepEqual(use.input, whole.content.find((block) => block.type === 'tool_use').input);
  assert.equal(streamed.stop_reason, 'tool_use');
});

test('an aborted stream frees what it held', async () => {
  const stream = client.messages.stream({ ...kQuestion, max_tokens: 900, temperature: 1 });
  let pieces = 0;
  stream.on('text', () => {
    if (++pieces === 3) stream.abort();
  });
  await assert.rejects(stream.finalMessage(), Anthropic.APIUserAbortError);
  await server.waitUntilIdle();
});

test('a wrong key, a wrong model and a too long prompt are told apart', async () => {
  await assert.rejects(connect('wrong').messages.create(kQuestion),
    (error) => error instanceof Anthropic.AuthenticationError &&
      error.error.type === 'error' && error.error.error.type === 'authentication_error');
  await assert.rejects(client.messages.create({ ...kQuestion, model: 'no-such-model' }),
    (error) => error instanceof Anthropic.NotFoundError && error.message.includes(kModel) &&
      error.error.error.type === 'not_found_error');
  const messages = [{ role: 'user', content: 'word '.repeat(3000) }];
  await assert.rejects(client.messages.create({ ...kQuestion, messages }),
    (error) => error instanceof Anthropic.BadRequestError &&
      error.message.includes(`${kContext}`) &&
      error.error.error.type === 'invalid_request_error');
});

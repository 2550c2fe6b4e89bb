// The official `openai` package: models, completions and chat.
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

const kStory = [{ role: 'user', content: 'Tell me of the old king.' }];

test('the model list holds the served model, and it can be asked for by name', async () => {
  const models = await client.models.list();
  assert.deepEqual(models.data.map((model) => model.id), [kModel]);
  const model = await client.models.retrieve(kModel);
  assert.equal(model.object, 'model');
});

test('a completion goes on with the prompt and counts its tokens', async () => {
  const answer = await client.completions.create({
    model: kModel, prompt: 'Once upon a time', max_tokens: 20, temperature: 0,
  });
  assert.equal(answer.object, 'text_completion');
  assert.ok(answer.choices[0].text.length > 10);
  assert.equal(answer.usage.completion_tokens, 20);
  assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + 20);
  assert.equal(answer.choices[0].finish_reason, 'length');
});

test('a stop string ends a completion and is not part of it', async () => {
  const whole = await client.completions.create({
    model: kModel, prompt: 'Once upon a time', max_tokens: 40, temperature: 0,
  });
  const stop = whole.choices[0].text.slice(10, 14);
  const cut = await client.completions.create({
    model: kModel, prompt: 'Once upon a time', max_tokens: 40, temperature: 0, stop,
  });
  assert.equal(cut.choices[0].text, whole.choices[0].text.split(stop)[0]);
  assert.equal(cut.choices[0].finish_reason, 'stop');
});

test('chat answers as the assistant, and the same seed gives the same words', async () => {
  const ask = () => client.chat.completions.create({
    model: kModel, messages: kStory, max_completion_tokens: 30, seed: 7,
  });
  const [first, second] = [await ask(), await ask()];
  assert.equal(first.choices[0].message.role, 'assistant');
  assert.ok(first.choices[0].message.content.length > 0);
  assert.equal(second.choices[0].message.content, first.choices[0].message.content);
  assert.ok(second.usage.prompt_tokens_details.cached_tokens >= 0);
});

test('content parts are read, and a part that is no text is refused by name', async () => {
  const answer = await client.chat.completions.create({
    model: kModel, max_tokens: 8,
    messages: [{ role: 'user', content: [{ type: 'text', text: 'Hello' }] }],
  });
  assert.equal(answer.choices.length, 1);
  await assert.rejects(client.chat.completions.create({
    model: kModel, max_tokens: 8,
    messages: [{ role: 'user',
      content: [{ type: 'image_url', image_url: { url: 'data:image/png;base64,AA' } }] }],
  }), (error) => error instanceof OpenAI.BadRequestError && /image_url/.test(error.message));
});

test('streamed pieces concatenate to the whole answer, with usage at the end', async () => {
  const params = { model: kModel, messages: kStory, max_tokens: 40, seed: 3 };
  const whole = await client.chat.completions.create(params);
  const stream = await client.chat.completions.create({
    ...params, stream: true, stream_options: { include_usage: true },
  });
  let text = '';
  let chunks = 0;
  let usage = null;
  let reason = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? '';
    reason = chunk.choices[0]?.finish_reason ?? reason;
    usage = chunk.usage ?? usage;
    ++chunks;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(reason, whole.choices[0].finish_reason);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
  assert.ok(chunks > 5, `${chunks} chunks for 40 tokens are no stream`);
});

test('the stream helper of the package assembles the same message', async () => {
  const params = { model: kModel, messages: kStory, max_tokens: 24, seed: 4 };
  const whole = await client.chat.completions.create(params);
  const runner = client.chat.completions.stream(params);
  assert.equal(await runner.finalContent(), whole.choices[0].message.content);
});

test('n = 3 gives three different answers, all finished, streamed or not', async () => {
  const params = { model: kModel, prompt: 'The ship', max_tokens: 16, n: 3, seed: 11,
    temperature: 1 };
  const whole = await client.completions.create(params);
  assert.deepEqual(whole.choices.map((choice) => choice.index), [0, 1, 2]);
  assert.equal(new Set(whole.choices.map((choice) => choice.text)).size, 3);
  const texts = ['', '', ''];
  const reasons = [null, null, null];
  for await (const chunk of await client.completions.create({ ...params, stream: true })) {
    for (const choice of chunk.choices) {
      texts[choice.index] += choice.text;
      reasons[choice.index] = choice.finish_reason ?? reasons[choice.index];
    }
  }
  assert.deepEqual(texts, whole.choices.map((choice) => choice.text));
  assert.deepEqual(reasons, whole.choices.map((choice) => choice.finish_reason));
});

test('min_tokens holds for each of n answers, likely as the end of text may be', async () => {
  const answer = await client.completions.create({
    model: kModel, prompt: 'The ship', max_tokens: 8, n: 3, seed: 5, min_tokens: 2,
    logit_bias: { 2: 100 }, return_token_ids: true,  // 2: the end of text
  });
  for (const choice of answer.choices) {
    assert.equal(choice.finish_reason, 'stop');
    assert.ok(choice.token_ids.length >= 2, `${choice.token_ids}`);
    assert.notEqual(choice.token_ids[0], 2);
  }
});

test('logprobs line up with the text, and the drawn token leads a greedy list', async () => {
  const answer = await client.chat.completions.create({
    model: kModel, messages: kStory, max_tokens: 12, temperature: 0, logprobs: true,
    top_logprobs: 3,
  });
  const { content } = answer.choices[0].logprobs;
  assert.equal(content.length, answer.usage.completion_tokens);
  const bytes = content.flatMap((entry) => entry.bytes);
  const text = Buffer.from(bytes).toString();
  assert.ok(text.includes(answer.choices[0].message.content), `${text} holds the answer`);
  for (const entry of content) {
    assert.equal(entry.top_logprobs.length, 3);
    assert.equal(entry.top_logprobs[0].token, entry.token);
    assert.ok(entry.logprob <= 0 && entry.logprob === entry.top_logprobs[0].logprob);
    assert.ok(entry.top_logprobs[1].logprob <= entry.logprob);
  }
});

const kWeather = {
  type: 'function',
  function: {
    name: 'weather',
    description: 'The weather of the coming days.',
    parameters: {
      type: 'object',
      properties: {
        city: { type: 'string', enum: ['Oslo', 'Rome'] },
        days: { type: 'integer', minimum: 1, maximum: 9 },
      },
      required: ['city', 'days'],
      additionalProperties: false,
    },
  },
};

function checkWeatherCall(call) {
  assert.equal(call.function.name, 'weather');
  const given = JSON.parse(call.function.arguments);
  assert.ok(['Oslo', 'Rome'].includes(given.city));
  assert.ok(given.days >= 1 && given.days <= 9);
}

test('a forced tool call goes out, its result comes back, and an answer follows', async () => {
  const messages = [{ role: 'user', content: 'How will the weather be?' }];
  const called = await client.chat.completions.create({
    model: kModel, messages, tools: [kWeather], max_tokens: 100, seed: 1,
    tool_choice: { type: 'function', function: { name: 'weather' } },
  });
  assert.equal(called.choices[0].finish_reason, 'tool_calls');
  const [call] = called.choices[0].message.tool_calls;
  checkWeatherCall(call);
  messages.push(called.choices[0].message,
    { role: 'tool', tool_call_id: call.id, content: '{"sky": "clear"}' });
  const answer = await client.chat.completions.create({
    model: kModel, messages, tools: [kWeather], tool_choice: 'auto', max_tokens: 20, seed: 1,
  });
  assert.ok(answer.choices[0].message.content.length > 0);
  assert.equal(answer.choices[0].message.tool_calls, undefined);
  assert.ok(answer.usage.prompt_tokens > called.usage.prompt_tokens);
});

test('a streamed tool call is the call that is not streamed', async () => {
  const params = {
    model: kModel, messages: kStory, tools: [kWeather], tool_choice: 'required',
    parallel_tool_calls: false, max_tokens: 100, seed: 6,
  };
  const whole = await client.chat.completions.create(params);
  const runner = client.chat.completions.stream(params);
  const streamed = await runner.finalChatCompletion();
  const [call] = streamed.choices[0].message.tool_calls;
  checkWeatherCall(call);
  assert.equal(streamed.choices[0].finish_reason, 'tool_calls');
  assert.equal(call.function.arguments,
    whole.choices[0].message.tool_calls[0].function.arguments);
});

test('runTools calls the function until the model answers', async () => {
  let calls = 0;
  const runner = client.chat.completions.runTools({
    model: kModel, messages: kStory, tool_choice: { type: 'function', function:
      { name: 'weather' } }, max_tokens: 100, seed: 2,
    tools: [{ type: 'function', function: { ...kWeather.function, parse: JSON.parse,
      function: (given) => {
        ++calls;
        return `clear for ${given.days} days`;
      } } }],
  }, { maxChatCompletions: 1 });
  await runner.done();
  assert.equal(calls, 1);
  assert.ok(runner.messages.some((message) => message.role === 'tool'));
});

test('an answer held to a JSON schema is valid under it', async () => {
  const answer = await client.chat.completions.create({
    model: kModel, messages: kStory, max_tokens: 120, seed: 5,
    response_format: { type: 'json_schema', json_schema: { name: 'person', strict: true, schema: {
      type: 'object',
      properties: { name: { type: 'string', maxLength: 20 }, age: { type: 'integer', minimum: 0,
        maximum: 120 }, king: { type: 'boolean' } },
      required: ['name', 'age', 'king'],
      additionalProperties: false,
    } } },
  });
  assert.equal(answer.choices[0].finish_reason, 'stop');
  const person = JSON.parse(answer.choices[0].message.content);
  assert.deepEqual(Object.keys(person), ['name', 'age', 'king']);
  assert.ok(person.name.length <= 20 && person.age >= 0 && person.age <= 120);
  assert.equal(typeof person.king, 'boolean');
});

test('an aborted stream frees what it held, and others go on', async () => {
  const long = { model: kModel, prompt: 'The', max_tokens: 900, ignore_eos: true, stream: true };
  const stream = await client.completions.create({ ...long, n: 4 });
  const other = client.completions.create({ ...long, max_tokens: 60, stream: false, seed: 1 });
  let chunks = 0;
  for await (const chunk of stream) {
    assert.ok(chunk.choices);
    if (++chunks === 12) break;  // leaving the loop aborts the request
  }
  assert.ok(chunks === 12);
  assert.equal((await other).usage.completion_tokens, 60);
  await server.waitUntilIdle();
});

test('an abort signal ends a request that is not streamed', async () => {
  const controller = new AbortController();
  const answer = client.completions.create(
    { model: kModel, prompt: 'The', max_tokens: 900, ignore_eos: true, n: 8 },
    { signal: controller.signal });
  while ((await server.requests()).length === 0) await new Promise(setImmediate);
  assert.ok(await server.metric('quire_kv_frames_leased') > 0);
  controller.abort();
  await assert.rejects(answer, OpenAI.APIUserAbortError);
  await server.waitUntilIdle();
});

test('a wrong key is an AuthenticationError', async () => {
  const stranger = new OpenAI({ baseURL: server.openai, apiKey: 'nobodys-key', maxRetries: 0 });
  await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
  await assert.rejects(stranger.chat.completions.create({ model: kModel, messages: kStory }),
    (error) => error.status === 401 && !error.message.includes('nobodys-key'));
});

test('a wrong model is a NotFoundError that names the right one', async () => {
  for (const stream of [false, true]) {
    await assert.rejects(
      client.chat.completions.create({ model: 'gpt-none', messages: kStory, stream }),
      (error) => error instanceof OpenAI.NotFoundError && error.message.includes(kModel) &&
        error.param === 'model');
  }
});

test('a prompt beyond the context is a BadRequestError with the true limit', async () => {
  const prompt = 'word '.repeat(3000);
  const { count } = await server.post('/tokenize', { prompt });
  for (const stream of [false, true]) {
    await assert.rejects(client.completions.create({ model: kModel, prompt, stream }),
      (error) => error instanceof OpenAI.BadRequestError &&
        error.message.includes(`${kContext}`) && error.message.includes(`${count}`));
  }
});

test('sampling parameters out of range are named', async () => {
  await assert.rejects(client.completions.create({ model: kModel, prompt: 'x', temperature: -1 }),
    (error) => error.status === 400 && error.param === 'temperature');
});

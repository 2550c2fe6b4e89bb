// LangChain's ChatOpenAI and OpenAI.
import assert from 'node:assert/strict';
import { webcrypto } from 'node:crypto';
import { after, before, test } from 'node:test';
import { HumanMessage, SystemMessage, ToolMessage } from '@langchain/core/messages';
import { ChatPromptTemplate } from '@langchain/core/prompts';
import { tool } from '@langchain/core/tools';
import { ChatOpenAI, OpenAI } from '@langchain/openai';
import { z } from 'zod';
import { kKey, kModel, startServer } from './server.mjs';

globalThis.crypto ??= webcrypto;  // LangChain wants Node 20, where it is there; 18 lacks only this

let server;
before(async () => {
  server = await startServer();
});
after(() => server.stop());

const settings = (more) => ({
  model: kModel, apiKey: kKey, maxTokens: 24, maxRetries: 0,
  configuration: { baseURL: server.openai }, ...more,
});

test('a chain of prompt and model answers and counts', async () => {
  const prompt = ChatPromptTemplate.fromMessages([['system', 'Be brief.'],
    ['human', 'Tell me of {what}.']]);
  const answer = await prompt.pipe(new ChatOpenAI(settings())).invoke({ what: 'the sea' });
  assert.ok(answer.content.length > 0);
  assert.ok(answer.usage_metadata.output_tokens <= 24);
  assert.ok(answer.usage_metadata.input_tokens > 0);
});

test('stream and batch give what invoke gives', async () => {
  const model = new ChatOpenAI(settings({ temperature: 0 }));
  const messages = [new SystemMessage('Be brief.'), new HumanMessage('Tell me of the sea.')];
  const { content } = await model.invoke(messages);
  let text = '';
  for await (const piece of await model.stream(messages)) text += piece.content;
  assert.equal(text, content);
  const batch = await model.batch([messages, messages]);
  assert.deepEqual(batch.map((each) => each.content), [content, content]);
});

test('the completions class goes on with a prompt', async () => {
  const model = new OpenAI(settings({ temperature: 0 }));
  assert.ok((await model.invoke('Once upon a time')).length > 0);
});

test('withStructuredOutput returns an object of the schema', async () => {
  const schema = z.object({ name: z.string().max(16), old: z.boolean() });
  const model = new ChatOpenAI(settings({ maxTokens: 100 }));
  const answer = await model.withStructuredOutput(schema, { method: 'jsonSchema', name: 'person' })
    .invoke('Describe a person.');
  schema.parse(answer);
});

test('a bound tool is called, and its result is answered', async () => {
  const weather = tool(({ days }) => `clear for ${days} days`, {
    name: 'weather', description: 'The weather of the coming days.',
    schema: z.object({ days: z.number().int().min(1).max(9) }),
  });
  const model = new ChatOpenAI(settings({ maxTokens: 80 }));
  const messages = [new HumanMessage('How will the weather be?')];
  const called = await model.bindTools([weather], { tool_choice: 'weather' }).invoke(messages);
  const [call] = called.tool_calls;
  assert.equal(call.name, 'weather');
  const result = await weather.invoke(call);
  assert.ok(result instanceof ToolMessage);
  assert.match(result.content, /clear for [1-9] days/);
  const answer = await model.invoke([...messages, called, result]);
  assert.ok(answer.content.length > 0);
});

test('a wrong key is an error with status 401', async () => {
  await assert.rejects(new ChatOpenAI(settings({ apiKey: 'wrong' })).invoke('x'),
    (error) => error.status === 401);
});

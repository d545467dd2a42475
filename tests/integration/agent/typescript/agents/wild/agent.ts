/** The agent of the driver contract in TypeScript: it does what `say TEXT` or `TOOL JSON-ARGUMENTS` asks for. */

import {BaseLlm, FunctionTool, LlmAgent, type BaseLlmConnection, type LlmRequest, type LlmResponse} from '@google/adk';
import {z} from 'zod';

const said = (text: string): LlmResponse => ({
  content: {role: 'model', parts: [{text}]},
  usageMetadata: {promptTokenCount: 5, totalTokenCount: 7},
  modelVersion: 'obedient-1',
});

class Obedient extends BaseLlm {
  constructor() {
    super({model: 'obedient-1'});
  }

  async *generateContentAsync(request: LlmRequest): AsyncGenerator<LlmResponse, void> {
    const parts = request.contents.at(-1)?.parts ?? [];
    const done = parts.find((part) => part.functionResponse)?.functionResponse;
    if (done) {
      yield said(JSON.stringify(done.response));
      return;
    }
    const [name, ...words] = (parts[0]?.text ?? '').split(' ');
    const rest = words.join(' ');
    if (name === 'say') {
      yield said(rest);
    } else if (name === 'conversation') {
      yield said(JSON.stringify(request.contents));
    } else {
      yield {content: {role: 'model', parts: [{functionCall: {name, args: JSON.parse(rest || '{}')}}]}};
    }
  }

  connect(): Promise<BaseLlmConnection> {
    throw new Error('no live connection');
  }
}

const add = new FunctionTool({
  name: 'add',
  description: 'Adds.',
  parameters: z.object({a: z.number(), b: z.number()}),
  execute: ({a, b}) => ({sum: a + b}),
});

const recall = new FunctionTool({
  name: 'recall',
  description: 'The state of the session.',
  parameters: z.object({}),
  execute: (_, context) => context!.state.toRecord(),
});

export const rootAgent = new LlmAgent({name: 'wild', model: new Obedient(), tools: [add, recall]});

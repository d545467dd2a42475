/** Answers lines of JSON with text alone; what its tools did is in its spans. With `bare` it answers as ADK-Rust's programs do. */

import {context, propagation, trace, SpanStatusCode} from '@opentelemetry/api';
import {OTLPTraceExporter} from '@opentelemetry/exporter-trace-otlp-http';
import {BatchSpanProcessor, NodeTracerProvider} from '@opentelemetry/sdk-trace-node';
import {appendFileSync} from 'node:fs';
import {createInterface} from 'node:readline';

interface Request {
  case_id: string;
  session_id: string;
  turn: number;
  user_text: string;
  traceparent?: string;
}

const provider = new NodeTracerProvider({spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())]});
provider.register();
const tracer = trace.getTracer('shop');
const isBare = process.argv.includes('bare');

function roll(args: {sides: number; label: string}): {rolled: number} {
  appendFileSync(process.env.CALLS_LOG!, JSON.stringify({name: 'roll', args}) + '\n');
  return {rolled: args.sides / 2};
}

function answer(request: Request): object {
  const args = {sides: 6, label: request.user_text};
  if (isBare) {
    return {text: 'rolled', tool_calls: [{name: 'roll', args, result: roll(args)}], session_id: request.session_id};
  }
  const told = propagation.extract(context.active(), {traceparent: request.traceparent});
  return context.with(told, () =>
    tracer.startActiveSpan('execute_tool roll', (span) => {
      const result = roll(args);
      span.setAttributes({
        'gen_ai.operation.name': 'execute_tool',
        'gen_ai.tool.name': 'roll',
        'gen_ai.tool.call.arguments': JSON.stringify(args),
        'gen_ai.tool.call.result': JSON.stringify(result),
      });
      span.setStatus({code: SpanStatusCode.OK});
      span.end();
      return {text: 'rolled'};
    }),
  );
}

for await (const line of createInterface({input: process.stdin})) {
  process.stdout.write(JSON.stringify(answer(JSON.parse(line) as Request)) + '\n');
}

/** Routes of the operations: requests from path, query and body; replies as JSON. */
import { z } from 'zod';
import { CONTROL_ROUTES, type ControlOperationName } from '#contract/protocol/control';
import { ControlError, type Operator } from '../control/operation.ts';
import { executeOperation, OPERATIONS } from '../control/operations.ts';
import type { ControlTarget } from '../control/target.ts';
import { HttpRefusal, statusOfCode } from './http-refusal.ts';
import { type HttpRoute, jsonReply } from './http-route.ts';

const OPERATION_NAMES = Object.keys(OPERATIONS) as ControlOperationName[];

/** One route per operation, executed as `caller`. */
export function operationRoutes(target: ControlTarget, caller: Operator): HttpRoute[] {
  return OPERATION_NAMES.map((name) => {
    const { method, path } = CONTROL_ROUTES[name];
    const typeOf = fieldTypes(name);
    return {
      method,
      path,
      operation: name,
      summary: OPERATIONS[name].summary,
      produces: 'application/json',
      handle: async ({ params, query, readJson }) => {
        const inBody = method === 'POST';
        const [unwanted] = inBody ? Object.keys(query) : [];
        if (unwanted !== undefined) {
          throw new HttpRefusal(400, `query ${unwanted}`, 'the request takes fields in its body');
        }
        const rest = inBody ? await readJson() : typedFields(query, typeOf);
        const fields = { ...rest, ...typedFields(params, typeOf) };
        try {
          return jsonReply(await executeOperation(target, name, fields, caller));
        } catch (error) {
          if (!(error instanceof ControlError)) throw error;
          const { code, field, reason } = error;
          const place = field in params ? 'path' : inBody ? 'body' : 'query';
          throw new HttpRefusal(statusOfCode(code), `${place} ${field}`.trim(), reason, { code });
        }
      },
    };
  });
}

/** The JSON Schema type of a field; undefined if it is not a simple type. */
type FieldTypes = (name: string) => string | undefined;

/** The types of an operation's fields, to convert strings to numbers and booleans. */
function fieldTypes(name: ControlOperationName): FieldTypes {
  // Computed on the first request: keeps daemon startup fast.
  let properties: NonNullable<z.core.JSONSchema.BaseSchema['properties']> | undefined;
  return (field) => {
    properties ??= z.toJSONSchema(OPERATIONS[name].request, { io: 'input' }).properties ?? {};
    const property = Object.hasOwn(properties, field) ? properties[field] : undefined;
    const type = typeof property === 'object' ? property.type : undefined;
    return typeof type === 'string' ? type : undefined;
  };
}

/** Converts strings to the types of the fields; leaves others for the schema to reject. */
function typedFields(
  texts: Readonly<Record<string, string>>,
  typeOf: FieldTypes,
): Record<string, unknown> {
  const entries = Object.entries(texts);
  return Object.fromEntries(entries.map(([name, text]) => [name, typedValue(text, typeOf(name))]));
}

function typedValue(text: string, type: string | undefined): unknown {
  if ((type === 'integer' || type === 'number') && /^-?[0-9]+(?:\.[0-9]+)?$/.test(text)) {
    return Number(text);
  }
  if (type === 'boolean' && (text === 'true' || text === 'false')) return text === 'true';
  return text;
}

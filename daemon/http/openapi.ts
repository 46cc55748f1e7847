/** The OpenAPI 3.1 description of all routes, generated from the routes themselves. */
import { z } from 'zod';
import { OPERATIONS } from '../control/operations.ts';
import { type HttpRoute, jsonReply } from './http-route.ts';

/** The part of JSON that this file needs. */
type Json = string | number | boolean | readonly Json[] | { readonly [key: string]: Json };

/** The route of the description. `routes` are all other routes. */
export function openApiRoute(routes: readonly HttpRoute[], version: string): HttpRoute {
  const route: HttpRoute = {
    method: 'GET',
    path: '/openapi.json',
    summary: 'This OpenAPI description',
    produces: 'application/json',
    handle: () => {
      description ??= openApi([...routes, route], version);
      return jsonReply(description);
    },
  };
  // Generated on the first request: keeps daemon startup fast.
  let description: Json | undefined;
  return route;
}

export function openApi(routes: readonly HttpRoute[], version: string): Json {
  const paths: Record<string, Record<string, Json>> = {};
  for (const route of routes) {
    const path = route.path.replace(/:(\w+)/g, '{$1}');
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: operationObject(route) };
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'iwarpd',
      version,
      description: 'The control plane of a daemon that emulates RoCE and iWARP devices.',
    },
    paths,
    components: {
      schemas: { Error: ERROR_SCHEMA },
      securitySchemes: { token: { type: 'http', scheme: 'bearer' } },
    },
  };
}

const ERROR_SCHEMA: Json = {
  type: 'object',
  properties: {
    error: {
      type: 'object',
      properties: {
        status: { type: 'integer' },
        code: { type: 'string', description: 'Stable errno name.' },
        field: {
          type: 'string',
          description: 'The part of the request that is wrong, for example `query pid`.',
        },
        message: { type: 'string', description: 'One readable line.' },
      },
      required: ['status', 'code', 'field', 'message'],
    },
  },
  required: ['error'],
};

const REFUSED: Json = {
  description: 'Refused; names the invalid field',
  content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
};

function operationObject(route: HttpRoute): Json {
  const { operation, summary, produces, open } = route;
  const reply: Json =
    operation === undefined ? {} : { schema: jsonSchema(OPERATIONS[operation].reply, 'output') };
  return {
    summary,
    ...(operation === undefined ? {} : { operationId: operation }),
    ...requestObject(route),
    responses: {
      '200': { description: 'Done', content: { [produces]: reply } },
      '4XX': REFUSED,
      '5XX': REFUSED,
    },
    // The token is optional only if the daemon was started without one.
    security: open === true ? [] : [{ token: [] }, {}],
  };
}

/** Parameters and body. */
function requestObject({ method, path, operation }: HttpRoute): { readonly [key: string]: Json } {
  if (operation === undefined) return {};
  const schema = jsonSchema(OPERATIONS[operation].request, 'input');
  const fields = propertiesOf(schema);
  const required = Array.isArray(schema['required']) ? schema['required'] : [];
  const inPath = new Set([...path.matchAll(/:(\w+)/g)].map(([, name]) => name));
  const isParameter = ([name]: [string, Json]) => inPath.has(name) || method !== 'POST';
  const parameters = Object.entries(fields)
    .filter(isParameter)
    .map(([name, field]) => ({
      name,
      in: inPath.has(name) ? 'path' : 'query',
      required: inPath.has(name) || required.includes(name),
      schema: field,
    }));
  const body = Object.entries(fields).filter((field) => !isParameter(field));
  const needed = required.filter((name) => body.some(([field]) => field === name));
  return {
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(body.length === 0
      ? {}
      : {
          requestBody: {
            required: needed.length > 0,
            content: {
              'application/json': {
                schema: { ...schema, properties: Object.fromEntries(body), required: needed },
              },
            },
          },
        }),
  };
}

function propertiesOf(schema: { readonly [key: string]: Json }): { readonly [key: string]: Json } {
  const { properties } = schema;
  return typeof properties === 'object' && !Array.isArray(properties)
    ? (properties as { readonly [key: string]: Json })
    : {};
}

function jsonSchema(schema: z.ZodType, io: 'input' | 'output'): { readonly [key: string]: Json } {
  const { $schema: _, ...rest } = z.toJSONSchema(schema, { io });
  return rest as { readonly [key: string]: Json };
}

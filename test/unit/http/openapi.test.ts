import { Validator } from '@seriousme/openapi-schema-validator';
import { describe, expect, it } from 'vitest';
import { controlRoutes } from '#daemon/http/control-routes';
import { openApi } from '#daemon/http/openapi';
import { FixedTarget } from '#test/support/control-target';

interface Described {
  readonly operationId?: string;
  readonly parameters?: readonly { name: string; in: string; required: boolean }[];
  readonly responses: Record<string, { content: Record<string, { schema?: object }> }>;
}
interface Document {
  readonly openapi: string;
  readonly info: { readonly version: string };
  readonly paths: Record<string, Record<string, Described>>;
}

const routes = controlRoutes(new FixedTarget());

async function document(): Promise<Document> {
  const route = routes.find(({ path }) => path === '/openapi.json');
  const reply = await route?.handle({
    params: {},
    query: {},
    signal: new AbortController().signal,
    readJson: async () => ({}),
  });
  return JSON.parse(String(reply?.body));
}

describe('the OpenAPI description', () => {
  it('is valid by the schema of OpenAPI 3.1', async () => {
    const validator = new Validator();
    const description = await document();
    const { valid, errors } = await validator.validate({ ...description });
    expect(errors).toBeUndefined();
    expect(valid).toBe(true);
    expect(validator.version).toBe('3.1');
  });

  it('is checked: a wrong one is refused', async () => {
    const { paths, ...rest } = await document();
    const wrong = { ...rest, paths: { ...paths, '/status': { get: { responses: 7 } } } };
    expect((await new Validator().validate(wrong)).valid).toBe(false);
  });

  it('has exactly the existing routes', async () => {
    const { paths, info } = await document();
    expect(info.version).toBe('1.2.3');
    const described = Object.entries(paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    );
    const served = routes.map(({ method, path }) => `${method} ${path.replace(/:(\w+)/g, '{$1}')}`);
    expect(described.sort()).toEqual(served.sort());
  });

  it('describes the input and output of operations', async () => {
    const { paths } = await document();
    const { get } = paths['/qps'] ?? {};
    expect(get?.operationId).toBe('listQPs');
    expect(get?.parameters).toMatchObject([
      { name: 'device', in: 'query', required: false, schema: { type: 'string' } },
      { name: 'pid', in: 'query', required: false, schema: { type: 'integer' } },
      { name: 'offset', in: 'query', required: false },
      { name: 'limit', in: 'query', schema: { minimum: 1, maximum: 8192 } },
    ]);
    const reply = get?.responses['200']?.content['application/json']?.schema;
    expect(reply).toMatchObject({ type: 'array', items: { properties: { qpNum: {} } } });
  });

  it('puts words of a path and fields of a body into their places', () => {
    const described = openApi(
      [
        {
          method: 'POST',
          path: '/things/:device',
          summary: 'A thing',
          produces: 'application/json',
          operation: 'listQPs',
          handle: () => ({ status: 200, type: 'text/plain', body: '' }),
        },
      ],
      '1',
    ) as unknown as { paths: Record<string, { post: Record<string, unknown> }> };
    const { post } = described.paths['/things/{device}'] ?? {};
    expect(post?.['parameters']).toMatchObject([{ name: 'device', in: 'path', required: true }]);
    expect(post?.['requestBody']).toMatchObject({
      required: false,
      content: { 'application/json': { schema: { properties: { pid: {} } } } },
    });
  });
});

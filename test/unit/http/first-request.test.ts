/** Requests that arrive before the routes are loaded, as right after the ready line of a daemon. */
import { afterEach, expect, it } from 'vitest';
import { type HttpRoute, textReply } from '#daemon/http/http-route';
import { HttpServer } from '#daemon/http/http-server';

const HELLO: HttpRoute = {
  method: 'GET',
  path: '/hello',
  summary: 'Greets',
  produces: 'text/plain',
  handle: () => textReply('hello\n'),
};

let server: HttpServer | undefined;
let noted: string[];

async function serve(routes: () => Promise<readonly HttpRoute[]>, token?: string): Promise<string> {
  noted = [];
  server = await HttpServer.listen({
    address: '127.0.0.1',
    port: 0,
    policy: { hostNames: new Set(['localhost']), token },
    routes,
    note: (_level, _text, { error }) => noted.push(String(error)),
  });
  return server.url;
}

afterEach(() => server?.close());

it('early requests wait for the routes, which are loaded once', async () => {
  let loads = 0;
  let finish = (_routes: readonly HttpRoute[]): void => undefined;
  const url = await serve(() => {
    loads += 1;
    return new Promise((resolve) => {
      finish = resolve;
    });
  });
  const early = [1, 2, 3].map(() => fetch(`${url}/hello`));
  const asked = (): boolean => loads > 0;
  await expect.poll(asked).toBe(true);
  finish([HELLO]);
  for (const reply of await Promise.all(early)) expect(await reply.text()).toBe('hello\n');
  expect((await fetch(`${url}/hello`)).status).toBe(200);
  expect(loads).toBe(1);
});

it('early requests fail with status 500 if the routes cannot be loaded, which the log explains', async () => {
  const url = await serve(() => Promise.reject(new Error('no such file')));
  expect((await fetch(`${url}/hello`)).status).toBe(500);
  expect(noted).toEqual(['Error: no such file']);
});

it('early requests need the token', async () => {
  const url = await serve(async () => [HELLO], 'abcdefghijklmnopqrstuvwxyz');
  expect((await fetch(`${url}/hello`)).status).toBe(401);
});

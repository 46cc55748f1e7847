import { once } from 'node:events';
import { createServer } from 'node:net';

/** A TCP port of `address` that was free a moment ago. */
export async function freePort(address = '127.0.0.1'): Promise<number> {
  const server = createServer().listen(0, address);
  await once(server, 'listening');
  const place = server.address();
  server.close();
  await once(server, 'close');
  if (typeof place !== 'object' || place === null) throw new Error('there is no free port');
  return place.port;
}

/**
 * A program of `embedded-life.test.ts`, which nothing but its embedded device keeps alive:
 * `embedded-ends.js PART KIND ADDRESS [HOST PORT]`.
 */
import { createEmbedded } from '#daemon/embedded/embedded-provider';
import type { DeviceConfig } from '#daemon/host/device-config';
import { connect, listen } from '#verbs-api/index';

const [part = '', kind = '', address = '', host = '', port = ''] = process.argv.slice(2);

/** Devices of this address, by protocol. */
const KINDS: Readonly<Record<string, Partial<DeviceConfig>>> = {
  tcp: { lowerLayer: 'tcp' },
  sctp: { lowerLayer: 'sctp' },
  roce: { transport: 'roce' },
};

const device = { name: 'device0', addresses: [address], ...KINDS[kind] };
const rnic = await createEmbedded({ devices: [device] });

/** Waits for a connection, and for a message on it. */
async function server(): Promise<void> {
  await using listener = await listen(rnic, { host: address });
  process.stdout.write(`port ${listener.address.port}\n`);
  await using connection = await listener.accept({ messages: true });
  for await (const message of connection.messages()) {
    process.stdout.write(`got ${Buffer.from(message).toString()}\n`);
    break;
  }
}

/** Connects, and reports when the peer has closed. */
async function client(): Promise<void> {
  await using connection = await connect(rnic, { host, port: Number(port), messages: true });
  await connection.send(Buffer.from('hello'));
  for await (const _ of connection.messages());
  process.stdout.write('closed\n');
}

switch (part) {
  case 'server':
    await server();
    await rnic.close();
    break;
  case 'client':
    await client();
    await rnic.close();
    break;
  case 'idle':
    // Left open, with nothing awaited.
    await (await rnic.open()).allocPD();
    break;
  case 'closed': {
    const listener = await listen(rnic, { host: address });
    const accepting = listener.accept();
    accepting.catch(() => undefined);
    await rnic.close();
    break;
  }
  default:
    throw new Error(`no part '${part}'`);
}
process.stdout.write('end\n');

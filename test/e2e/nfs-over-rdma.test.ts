/** Client and server of NFS over RDMA in one process, each with its own RNIC. */
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Provider } from '#contract/verbs/provider';
import { createEmbedded } from '#daemon/embedded/embedded-provider';
import { NfsClient, NfsError, type RemoteFile } from '#verbs-api/nfs/client/nfs-client';
import { Nfs3Status } from '#verbs-api/nfs/nfs3/constants';
import { NfsServer } from '#verbs-api/nfs/server/nfs-server';
import { pattern } from '../support/pattern.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const MEBIBYTE = 1 << 20;

let folder: string;
let providers: Provider[];
let server: NfsServer;

async function connect(): Promise<NfsClient> {
  const provider = await createEmbedded();
  providers.push(provider);
  const { port } = server.address;
  return await NfsClient.connect(provider, {
    host: '127.0.0.1',
    port,
    mountPort: server.mountPort,
  });
}

async function readAll(client: NfsClient, path: string): Promise<Buffer> {
  const file = await client.find(path);
  const pieces: Buffer[] = [];
  for await (const bytes of client.read(file, path)) pieces.push(Buffer.from(bytes));
  return Buffer.concat(pieces);
}

async function put(client: NfsClient, path: string, bytes: Buffer): Promise<void> {
  let at = 0;
  const written = await client.write(path, async (target) => {
    const count = bytes.copy(target, 0, at);
    at += count;
    return count;
  });
  expect(Number(written)).toBe(bytes.length);
}

beforeEach(async () => {
  folder = temporaryFolder();
  const provider = await createEmbedded();
  providers = [provider];
  const options = { host: '127.0.0.1', port: 0, mountPort: 0, squashRoot: false };
  server = await NfsServer.listen(provider, folder, options);
});

afterEach(async () => {
  await server.close();
  for (const provider of providers.reverse()) await provider.close();
});

describe('files', () => {
  it('of every awkward length are written and read back', async () => {
    await using client = await connect();
    const lengths = [0, 1, 3, 1000, 4096, 5001, MEBIBYTE - 1, MEBIBYTE, 3 * MEBIBYTE + 1];
    for (const [index, length] of lengths.entries()) {
      const bytes = Buffer.from(pattern(length, index));
      await put(client, `/f${length}`, bytes);
      expect(readFileSync(join(folder, `f${length}`)).equals(bytes)).toBe(true);
      expect((await readAll(client, `/f${length}`)).equals(bytes)).toBe(true);
    }
  });

  it('are moved by several clients at once', async () => {
    const clients = await Promise.all([connect(), connect(), connect()]);
    await Promise.all(
      clients.map(async (client, index) => {
        for (let round = 0; round < 3; round++) {
          const bytes = Buffer.from(pattern(2 * MEBIBYTE + index, round));
          await put(client, `/of-${index}`, bytes);
          expect((await readAll(client, `/of-${index}`)).equals(bytes)).toBe(true);
        }
      }),
    );
    for (const client of clients) await client.close();
  });

  it('may be abandoned midway', async () => {
    writeFileSync(join(folder, 'f'), pattern(20 * MEBIBYTE));
    await using client = await connect();
    const file = await client.find('/f');
    for await (const bytes of client.read(file, '/f')) {
      expect(bytes.length).toBe(MEBIBYTE);
      break;
    }
    expect((await client.find('/f')).attributes.size).toBe(BigInt(20 * MEBIBYTE));
  });

  it('end with an error when their server closes', async () => {
    writeFileSync(join(folder, 'f'), pattern(20 * MEBIBYTE));
    const client = await connect();
    const file = await client.find('/f');
    const reading = (async () => {
      for await (const bytes of client.read(file, '/f')) {
        expect(bytes.length).toBeGreaterThan(0);
        await server.close();
      }
    })();
    const ended = expect(reading).rejects.toThrow();
    setTimeout(() => void client.close(), 500);
    await ended;
    await client.close();
  });
});

describe('directories', () => {
  async function namesOf(client: NfsClient, directory: RemoteFile): Promise<string[]> {
    const names: string[] = [];
    for await (const { name, attributes } of client.list(directory, '/d')) {
      expect(attributes).toBeDefined();
      names.push(Buffer.from(name).toString());
    }
    return names.sort();
  }

  it('come whole in reply chunks, however many names they have [NFSR-5667.4-05]', async () => {
    mkdirSync(join(folder, 'd'));
    const wanted = Array.from({ length: 700 }, (_none, i) => `a name of some length, number ${i}`);
    for (const name of wanted) writeFileSync(join(folder, 'd', name), '');
    await using client = await connect();
    expect(await namesOf(client, await client.find('/d'))).toEqual(wanted.sort());
  });
});

describe('links', () => {
  it('are returned, long ones too, and not followed', async () => {
    const long = 'x'.repeat(4000);
    symlinkSync(long, join(folder, 'long'));
    symlinkSync('/etc', join(folder, 'out'));
    await using client = await connect();
    const { handle } = await client.find('/long');
    const { path } = await client.call('readlink', handle, '/long');
    expect(Buffer.from(path).toString()).toBe(long);
    const root = (await client.find('/')).handle;
    const where = { directory: root, name: Buffer.from('made') };
    await client.call('symlink', { where, attributes: {}, path: Buffer.from(long) }, '/made');
    const made = await client.call('readlink', (await client.find('/made')).handle, '/made');
    expect(Buffer.from(made.path).toString()).toBe(long);
    const inside = client.find('/out/passwd');
    await expect(inside).rejects.toThrow(NfsError);
    await expect(inside).rejects.toMatchObject({ status: Nfs3Status.inval });
  });
});

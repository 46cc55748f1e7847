import { expect, it } from 'vitest';
import { createEmbedded } from '#daemon/embedded/embedded-provider';
import { listenDatagrams, openDatagrams, resolveDatagrams } from '#verbs-api/datagrams';
import { DEVICE, SMALL_DEVICE } from '../support/provider-fixture.ts';
import { ROCE_DEVICE, type RoceFixture } from '../support/roce-fixture.ts';
import { roceSuite } from './roce.ts';

/** Packets go between devices of one host, so one provider makes both ends. */
const embedded: RoceFixture = {
  async start() {
    const provider = await createEmbedded({ devices: [DEVICE, ROCE_DEVICE] });
    return { server: provider, client: provider, stop: () => provider.close() };
  },
};

roceSuite('embedded', embedded);

it('refuses services of datagrams at the address of an iWARP device with EOPNOTSUPP', async () => {
  await using provider = await createEmbedded({ devices: [SMALL_DEVICE, ROCE_DEVICE] });
  const [host] = SMALL_DEVICE.addresses;
  const [roce] = ROCE_DEVICE.addresses;
  const refused = expect.objectContaining({
    code: 'EOPNOTSUPP',
    message: `device ${SMALL_DEVICE.name} is an iWARP device: it has no datagram services`,
  });
  await expect(listenDatagrams(provider, { host })).rejects.toEqual(refused);
  await expect(openDatagrams(provider, { host })).rejects.toEqual(refused);
  await expect(resolveDatagrams(provider, { host, port: 7 })).rejects.toEqual(refused);
  const source = { address: host, port: 0 };
  await expect(resolveDatagrams(provider, { host: roce, port: 7, source })).rejects.toEqual(
    refused,
  );
});

import { createEmbedded } from '../../daemon/embedded/embedded-provider.ts';
import { DEVICE } from './fixture.ts';
import { roceSuite } from './roce.ts';
import { ROCE_DEVICE, type RoceFixture } from './roce-fixture.ts';

/** Packets go between devices of one host, so both ends are of one provider. */
const embedded: RoceFixture = {
  async start() {
    const provider = await createEmbedded({ devices: [DEVICE, ROCE_DEVICE] });
    return { server: provider, client: provider, stop: () => provider.close() };
  },
};

roceSuite('embedded', embedded);

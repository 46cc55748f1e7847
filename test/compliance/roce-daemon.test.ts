import { DEVICE } from '../support/provider-fixture.ts';
import { ROCE_DEVICE } from '../support/roce-fixture.ts';
import { daemonDevices, daemonPair } from './pairs.ts';
import { roceSuite } from './roce.ts';

const devices = daemonDevices([DEVICE, ROCE_DEVICE]);

/** Two clients of one daemon. */
roceSuite('daemon', { start: () => daemonPair({ devices }) });

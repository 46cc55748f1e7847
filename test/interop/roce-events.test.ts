/** The asynchronous events of a RoCE device, as an unmodified program gets them. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { describeWith } from '../support/prerequisites.ts';
import { RoceRig } from '../support/roce-rig.ts';
import { ShimProgram } from '../support/shim-programs.ts';
import { compileProgram } from './c-programs.ts';

const EVENTS = [
  'COMM_EST: communication established, B',
  'SQ_DRAINED, idle: send queue drained, A',
  'SQ_DRAINED, then: send queue drained, A',
  'LAST_WQE_REACHED: last WQE reached, B',
  'ACCESS_ERR: local access violation work queue error, B',
  'ACCESS_ERR, no right: local access violation work queue error, B',
  'REQ_ERR: invalid request local work queue error, B',
  'SRQ_LIMIT, one below: SRQ limit reached, B',
  'SRQ_LIMIT, armed again: SRQ limit reached, B',
  'CQ_ERR, send queue: CQ error, A.send',
  'CQ_ERR, send queue: CQ error, A.send',
  'CQ_ERR, send queue: CQ error, A.send',
  'CQ_ERR, receive queue: CQ error, B.recv',
  'port: waits',
  'port: port error, port 1',
  'port: down',
  'port: port active, port 1',
  'port: active',
];

let rig: RoceRig;
let program: string;

describeWith(['native'], 'asynchronous events', () => {
  beforeAll(async () => {
    program = compileProgram('roce-events');
    rig = await RoceRig.start({ name: 'roce0', addresses: ['127.0.72.20'], transport: 'roce' });
  });

  afterAll(() => rig.stop());

  it('are each reported once, for their object [IBV-AE-01, IBV-AE-02, IBV-AE-03, IBV-AE-04, IBV-AE-05, IBV-CQ-01, IBV-SRQ-03, IBV-SRQ-06]', async () => {
    const running = new ShimProgram([program, 'roce0', '1'], rig.environment);
    await running.until(/port: waits/);
    const fault = rig.host.faults.add({ kind: 'port-down', device: 'roce0' }, undefined);
    await running.until(/port: down/);
    rig.host.faults.remove(fault.id);
    const { status, output } = await running.end();
    expect(output.trim().split('\n')).toEqual(EVENTS);
    expect(status).toBe(0);
  });
});

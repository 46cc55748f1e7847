/**
 * A client that has one object of every kind and never stops moving bytes: it exists to be
 * killed. Arguments: socket path, the survivor's port.
 */
import { Access, MWType, SendFlag, WROpcode } from '#contract/verbs/enums';
import { connect } from '#verbs-api/connect';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { encodeRegion, parseRegion, REGION_BYTES } from '../support/daemon-region.ts';

const [socketPath = '', port = ''] = process.argv.slice(2);
const provider = await connectDaemon({ socketPath });
const context = await provider.open();
const pd = await context.allocPD();
const rights = Access.localWrite | Access.remoteWrite | Access.remoteRead;
const shared = await pd.allocMR(REGION_BYTES, rights);
const own = await pd.regMR(new Uint8Array(REGION_BYTES), rights);
await pd.allocMW(MWType.type2);
await pd.createSRQ({ maxWr: 16 });
const channel = await context.createCompChannel();
const cq = await context.createCQ({ cqe: 256, channel });
const connection = await connect(provider, {
  host: '127.0.0.1',
  port: Number(port),
  pd,
  cq,
  privateData: encodeRegion(own),
});
const peer = parseRegion(connection.established.privateData);
process.stdout.write('running\n');

const { qp } = connection;
for (let round = 0; ; round++) {
  const local = round % 2 === 0 ? own : shared;
  const opcode = round % 3 === 0 ? WROpcode.rdmaRead : WROpcode.rdmaWrite;
  const remote = { remoteAddr: peer.address, rkey: peer.rkey };
  qp.postSend({ opcode, flags: SendFlag.signaled, sgList: [local.sge()], ...remote });
  const [completion] = await cq.wait();
  if (completion?.status !== 0) process.exit(1);
}

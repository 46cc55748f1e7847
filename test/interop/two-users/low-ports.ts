/** A part of `user-programs.ts`: requests ports and keys of root in every possible way. */
import { QPState, QPType } from '#contract/verbs/enums';
import type { Provider, SocketAddress } from '#contract/verbs/provider';
import { connectDaemon } from '#verbs-api/connect-daemon';

const ROCE_ADDRESS = '127.0.0.3';
/** The Q_Key of QP 1. */
const CONTROLLED_QKEY = 0x8001_0000;

/** Tries `addresses` with `port`, and a queue pair of the device `r`; reports each outcome. */
export async function lowPorts(
  path: string,
  [port = '', ...addresses]: readonly string[],
  tried: (call: () => Promise<unknown>) => Promise<string>,
): Promise<Readonly<Record<string, string>>> {
  await using provider = await connectDaemon({ socketPath: path });
  const outcomes: Record<string, string> = {};
  for (const address of addresses) {
    for (const datagrams of [false, true]) {
      const local = { address, port: Number(port) };
      const name = `${address}${datagrams ? ' datagrams' : ''}`;
      outcomes[name] = await tried(() => listenAt(provider, local, datagrams));
      outcomes[`from ${name}`] = await tried(() => dialFrom(provider, local, datagrams));
    }
  }
  outcomes['qkey'] = await tried(() => takeQkey(provider));
  return outcomes;
}

async function listenAt(provider: Provider, local: SocketAddress, datagrams: boolean) {
  await using id = await provider.createId({ datagrams });
  await id.bindAddr(local);
  await id.listen(1);
}

async function dialFrom(provider: Provider, source: SocketAddress, datagrams: boolean) {
  await using id = await provider.createId({ datagrams });
  // The wildcard as a source leaves the choice to the destination.
  const address = source.address === '0.0.0.0' ? ROCE_ADDRESS : source.address;
  await id.resolveAddr({ address, port: 9 }, { source });
}

async function takeQkey(provider: Provider): Promise<void> {
  const context = await provider.open('r');
  const pd = await context.allocPD();
  const cq = await context.createCQ({ cqe: 1 });
  const queues = { sendCQ: cq, recvCQ: cq, maxSendWr: 1, maxRecvWr: 1 };
  const qp = await pd.createQP({ type: QPType.ud, ...queues });
  await qp.modify({ state: QPState.INIT, pkeyIndex: 0, portNum: 1, qkey: CONTROLLED_QKEY });
}

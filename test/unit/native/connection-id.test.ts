/** Ids of native devices over an rdma_cm that the test controls. */
import { beforeEach, expect, it } from 'vitest';
import { CMEventType, QPState } from '#contract/verbs/enums';
import type { Provider } from '#contract/verbs/provider';
import type { NativeCMEvent, NativeCmId } from '#native-bridge/rdma/cm-id';
import { Presence } from '#verbs-api/client/lifetime';
import { RdmaConnectionId } from '#verbs-api/native/connection-id';
import { RdmaQP } from '#verbs-api/native/queue-pair';

const PEER = { address: '10.0.0.2', port: 7471 };
const PROVIDER = {} as Provider;

let calls: string[];
let presence: Presence;

beforeEach(() => {
  calls = [];
  presence = new Presence();
});

function makeId(isRequest = false): RdmaConnectionId {
  const answer = (_target: object, name: string) => () => calls.push(name);
  const native = new Proxy({}, { get: answer }) as NativeCmId;
  return new RdmaConnectionId(
    { provider: PROVIDER, presence, forget: () => {} },
    native,
    isRequest,
  );
}

function makeQP(): RdmaQP {
  const device = {
    attributes: { maxQpInitRdAtom: 1, maxQpRdAtom: 1 },
    traits: { maxPrivateData: 1 },
  };
  const note = () => {};
  return Object.create(RdmaQP.prototype, {
    pd: { value: { context: { provider: PROVIDER } } },
    native: { value: { device } },
    assertUsable: { value: () => presence.assertPresent() },
    connected: { value: false },
    state: { value: QPState.INIT },
    noteConnecting: { value: note },
    noteNotConnected: { value: note },
    noteDisconnected: { value: note },
  });
}

function happen(id: RdmaConnectionId, ...types: CMEventType[]): void {
  for (const type of types) {
    const none = {
      status: 0,
      privateData: new Uint8Array(0),
      initiatorDepth: 0,
      responderResources: 0,
    };
    id.handleEvent({ type, ...none } as NativeCMEvent, id);
  }
}

it('does not connect an id if its device is removed as its route is resolved', async () => {
  const id = makeId();
  const resolved = id.resolveAddr(PEER);
  happen(id, CMEventType.addrResolved);
  await resolved;
  const connected = id.connect({ qp: makeQP() });
  happen(id, CMEventType.routeResolved, CMEventType.deviceRemoval);
  await expect(connected).rejects.toMatchObject({ code: 'EINVAL' });
  expect(calls).not.toContain('connect');
});

it('says that the peer of a request left, until the id is closed or lost', async () => {
  const listener = makeId();
  await listener.listen(4);
  const requests = [makeId(true), makeId(true)] as const;
  for (const request of requests) {
    expect(listener.enlist(request)).toBe(true);
    happen(request, CMEventType.disconnected);
    await expect(request.reject()).rejects.toMatchObject({ code: 'ECONNRESET' });
  }
  const closing = requests[0].close();
  await expect(requests[0].reject()).rejects.toMatchObject({ code: 'EINVAL' });
  await closing;
  presence.lose('siw0 is gone');
  await expect(requests[1].reject()).rejects.toMatchObject({ code: 'EIO' });
});

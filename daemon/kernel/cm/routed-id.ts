/** The precondition of CONNECT, the same for every transport. */
import { invalid } from '#contract/verbs/errors';
import type { HostId } from '#daemon/host/host-id';

/** EINVAL unless the route of the id is resolved and it has not connected yet. */
export function expectRouted({ state }: HostId): void {
  if (state === 'routed') return;
  if (state === 'connection') throw invalid('the id is already connecting or connected');
  if (state === 'closed') {
    throw invalid(
      'the connection of the id has failed or ended: create another id to connect again',
    );
  }
  const text = `the route must be resolved first (rdma_resolve_route); the id is ${state}`;
  throw invalid(text);
}

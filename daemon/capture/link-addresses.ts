/** Decodes the ends of a link and their queue pairs from the daemon's records for watchers. */
import { decodeValue, IpcFormatError } from '#contract/protocol/ipc-value';
import type { LinkQueuePairs, QueuePairName } from '#contract/protocol/tap-records';
import type { LinkAddresses } from './capture-tap.ts';

/** Decodes the body of an `opened` or `skipped` record. Throws `IpcFormatError`. */
export function linkAddresses(body: Uint8Array): LinkAddresses {
  const value: unknown = decodeValue(body);
  if (!isLinkAddresses(value)) throw new IpcFormatError('the record of a link lacks its addresses');
  return value;
}

/** Decodes the body of a `joined` record. Throws `IpcFormatError`. */
export function linkQueuePairs(body: Uint8Array): LinkQueuePairs {
  const value: unknown = decodeValue(body);
  if (!isLinkQueuePairs(value))
    throw new IpcFormatError('the record of a link lacks its queue pairs');
  return value;
}

function isLinkQueuePairs(value: unknown): value is LinkQueuePairs {
  if (typeof value !== 'object' || value === null) return false;
  return (['us', 'peer'] as const).every((side) => {
    const pair: unknown = Reflect.get(value, side);
    return pair === undefined || isQueuePairName(pair);
  });
}

function isQueuePairName(value: unknown): value is QueuePairName {
  if (typeof value !== 'object' || value === null) return false;
  const field = (name: keyof QueuePairName): unknown => Reflect.get(value, name);
  return typeof field('device') === 'string' && typeof field('qpn') === 'number';
}

function isLinkAddresses(value: unknown): value is LinkAddresses {
  if (typeof value !== 'object' || value === null) return false;
  const field = (name: keyof LinkAddresses): unknown => Reflect.get(value, name);
  return (
    typeof field('localAddress') === 'string' &&
    typeof field('localPort') === 'number' &&
    typeof field('remoteAddress') === 'string' &&
    typeof field('remotePort') === 'number' &&
    typeof field('dialed') === 'boolean' &&
    typeof field('emssBytes') === 'number'
  );
}

/** The ends of a link as the daemon tells them to a watcher. */
import { decodeValue, IpcFormatError } from '../../verbs-api/contract/ipc-value.ts';
import type { LinkAddresses } from './capture-tap.ts';

/** Decodes the body of an `opened` or `skipped` record. Throws `IpcFormatError`. */
export function linkAddresses(body: Uint8Array): LinkAddresses {
  const value: unknown = decodeValue(body);
  if (!isLinkAddresses(value)) throw new IpcFormatError('a link without its ends');
  return value;
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

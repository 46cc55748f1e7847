/**
 * A client whose registered memory never resolves: its pages are behind a userfaultfd without a
 * handler. Arguments: socket path; 'before' or 'after': whether its pages stop resolving before or
 * after the registration. Prints its port, to which peers connect to write there, and the tier.
 */
import koffi from 'koffi';
import { Access } from '#contract/verbs/enums';
import { listen } from '#verbs-api/connect';
import { connectDaemon } from '#verbs-api/connect-daemon';
import { encodeRegion, REGION_BYTES } from '../support/daemon-region.ts';

const SYS_USERFAULTFD = process.arch === 'arm64' ? 282 : 323;
const UFFD_API = 0xaa;
const UFFDIO_API = 0xc018_aa3f;
const UFFDIO_REGISTER = 0xc020_aa00;
const MODE_MISSING = 1n;
const PROT_READ_WRITE = 3;
const MAP_PRIVATE_ANONYMOUS = 0x22;
const MADV_DONTNEED = 4;

const libc = koffi.load('libc.so.6');
const mmap = libc.func('uint64_t mmap(void *, uint64_t, int, int, int, int64_t)');
const madvise = libc.func('int madvise(uint64_t, uint64_t, int)');
const syscall = libc.func('int64_t syscall(int64_t, int64_t)');
const ioctl = libc.func('int ioctl(int, uint64_t, void *)');

/** Makes accesses to the range wait for a handler of the userfaultfd, which has none. */
function leaveUnresolved(address: bigint): void {
  const fd = Number(syscall(SYS_USERFAULTFD, 0));
  const api = new BigUint64Array([BigInt(UFFD_API), 0n, 0n]);
  const range = new BigUint64Array([address, BigInt(REGION_BYTES), MODE_MISSING, 0n]);
  if (fd < 0 || ioctl(fd, UFFDIO_API, api) !== 0) throw new Error('no userfaultfd');
  if (madvise(address, REGION_BYTES, MADV_DONTNEED) !== 0) throw new Error('madvise');
  if (ioctl(fd, UFFDIO_REGISTER, range) !== 0) throw new Error('UFFDIO_REGISTER');
}

const [socketPath = '', when = ''] = process.argv.slice(2);
const address = BigInt(mmap(null, REGION_BYTES, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0));
const memory = new Uint8Array(koffi.view(address, REGION_BYTES));
if (when === 'before') leaveUnresolved(address);
const provider = await connectDaemon({ socketPath });
const context = await provider.open();
const pd = await context.allocPD();
const own = await pd.regMR(memory, Access.localWrite | Access.remoteWrite);
if (when === 'after') leaveUnresolved(address);
const listener = await listen(provider, { host: '127.0.0.1' });
process.stdout.write(`listens on ${listener.address.port}, memory by ${own.tier}\n`);
for await (const request of listener) {
  await request.accept({ pd, privateData: encodeRegion(own) });
}

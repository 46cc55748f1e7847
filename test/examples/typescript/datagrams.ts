/** A datagram service that answers in capitals, and a client that finds it, on a RoCE device. */
import {
  Access,
  type DatagramListener,
  GRH_BYTES,
  listenDatagrams,
  resolveDatagrams,
  WROpcode,
} from 'iwarpd';
import { createEmbedded } from 'iwarpd/embedded';

const HOST = '127.0.0.1';
const BYTES = GRH_BYTES + 256;

/** Answers one peer's first datagram. */
async function serve(listener: DatagramListener): Promise<void> {
  await using endpoint = await listener.accept({ privateData: Buffer.from('in capitals') });
  const memory = await endpoint.pd.allocMR(BYTES, Access.localWrite);
  endpoint.qp.postRecv({ sgList: [memory.sge()] });
  const [question] = await endpoint.cq.wait();
  if (question === undefined) return;
  const text = Buffer.from(memory.buffer.subarray(GRH_BYTES, question.byteLen)).toString();
  const ud = await endpoint.answerTo(question, memory.buffer); // reads the route before the payload
  const inlineData = Buffer.from(text.toUpperCase());
  endpoint.qp.postSend({ opcode: WROpcode.send, inlineData, ud });
  await endpoint.cq.wait(); // until the answer is sent
}

await using rnic = await createEmbedded({
  devices: [{ name: 'roce0', transport: 'roce', addresses: [HOST] }],
});
await using listener = await listenDatagrams(rnic, { host: HOST });
const serving = serve(listener);

const { port } = listener.address;
await using service = await resolveDatagrams(rnic, { host: HOST, port, timeoutMs: 5000 });
console.log(`found a service: ${Buffer.from(service.privateData).toString().replaceAll('\0', '')}`);
const memory = await service.pd.allocMR(BYTES, Access.localWrite);
service.qp.postRecv({ wrId: 1, sgList: [memory.sge()] });
const ud = service.destination;
service.qp.postSend({ opcode: WROpcode.send, inlineData: Buffer.from('hello'), ud });
for await (const { wrId, byteLen } of service.cq) {
  if (wrId !== 1n) continue; // the Send has completed
  console.log(`hello -> ${Buffer.from(memory.buffer.subarray(GRH_BYTES, byteLen)).toString()}`);
  break;
}
await serving;

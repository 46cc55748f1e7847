import { createEmbedded } from '#daemon/embedded/embedded-provider';
import { Access, connect, listen, SendFlag, WROpcode } from '#verbs-api/index';

/** A server lends 1 MiB of memory; a client writes into it over RDMA and says when it is done. */
export async function example(host = '127.0.0.1'): Promise<string> {
  await using rnic = await createEmbedded();
  await using listener = await listen(rnic, { host });

  const serving = (async () => {
    for await (const request of listener) {
      await using pd = await (await rnic.open()).allocPD();
      await using mr = await pd.allocMR(1 << 20, Access.localWrite | Access.remoteWrite);
      const lent = new DataView(new ArrayBuffer(12));
      lent.setBigUint64(0, mr.address);
      lent.setUint32(8, mr.rkey);
      await using connection = await request.accept({
        pd,
        privateData: new Uint8Array(lent.buffer),
        prepare: ({ qp }) => qp.postRecv({ sgList: [] }),
      });
      await connection.cq.wait();
      return Buffer.from(mr.buffer.subarray(0, 12)).toString();
    }
    return '';
  })();

  await using client = await connect(rnic, { host, port: listener.address.port });
  await using mr = await client.pd.allocMR(4096, Access.localWrite);
  mr.buffer.set(Buffer.from('hello, iWARP'));
  const lent = new DataView(client.established.privateData.slice().buffer);
  const remote = { remoteAddr: lent.getBigUint64(0), rkey: lent.getUint32(8) };
  client.qp.postSend([
    { opcode: WROpcode.rdmaWrite, sgList: [mr.sge(0, 12)], ...remote },
    { opcode: WROpcode.send, flags: SendFlag.signaled },
  ]);
  return await serving;
}

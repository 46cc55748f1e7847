import { expect, it } from 'vitest';
import { MPA_ERRORS } from '#daemon/iwarp/wire/protocol-error';

it('MPA has the seven errors 0x2001 to 0x2007 [IANA-3.3-01, EMPA-8-01, EMPA-8-02]', () => {
  const { connectionLost, crc, markerMismatch, invalidStartupFrame } = MPA_ERRORS;
  const { localCatastrophic, insufficientIrd, noMatchingRtr } = MPA_ERRORS;
  const inOrder = [
    connectionLost,
    crc,
    markerMismatch,
    invalidStartupFrame,
    localCatastrophic,
    insufficientIrd,
    noMatchingRtr,
  ];
  expect(inOrder.map(({ layer, etype, code }) => (layer << 12) | (etype << 8) | code)).toEqual([
    0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006, 0x2007,
  ]);
  expect(Object.values(MPA_ERRORS)).toHaveLength(7);
});

/** Hostile HTTP requests, capture files, configuration files and command lines. */
import { describe, it } from 'vitest';
import { bites, smoke } from './smoke.ts';

describe('fuzzing HTTP, captures and configuration', () => {
  it('refuses every request without a token and survives all of them', () => smoke('http-request'));

  it('does the same over TCP', () => smoke('http-socket'));

  it('decodes damaged capture files up to the damage, however they are split', () =>
    smoke('pcap-file'));

  it('never reads a segment beyond its packet', () => smoke('pcap-packet'));

  it('refuses bad configuration with a one-line error', () => smoke('config-text'));
});

describe('canaries: a planted defect is found', () => {
  it.each(['http-request', 'http-socket', 'pcap-file', 'pcap-packet', 'config-text'])('%s', bites);
});

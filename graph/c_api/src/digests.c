/* SHA-256 and SHA-512 (FIPS 180-4), and CRC-32 as zip files have it (ISO 3309, reflected, polynomial 0xEDB88320).

   The constants of SHA-512 are the first 64 bits of the fractional parts of the cube roots of the first 80 primes
   (section 4.2.3), and of the square roots of the first 8 (section 5.3.5). Those of SHA-256 are the first halves of the
   first 64 and of the same 8. */
#include "internal.h"

#include <pthread.h>

static const uint64_t constants[80] = {
    0x428a2f98d728ae22, 0x7137449123ef65cd, 0xb5c0fbcfec4d3b2f, 0xe9b5dba58189dbbc,
    0x3956c25bf348b538, 0x59f111f1b605d019, 0x923f82a4af194f9b, 0xab1c5ed5da6d8118,
    0xd807aa98a3030242, 0x12835b0145706fbe, 0x243185be4ee4b28c, 0x550c7dc3d5ffb4e2,
    0x72be5d74f27b896f, 0x80deb1fe3b1696b1, 0x9bdc06a725c71235, 0xc19bf174cf692694,
    0xe49b69c19ef14ad2, 0xefbe4786384f25e3, 0x0fc19dc68b8cd5b5, 0x240ca1cc77ac9c65,
    0x2de92c6f592b0275, 0x4a7484aa6ea6e483, 0x5cb0a9dcbd41fbd4, 0x76f988da831153b5,
    0x983e5152ee66dfab, 0xa831c66d2db43210, 0xb00327c898fb213f, 0xbf597fc7beef0ee4,
    0xc6e00bf33da88fc2, 0xd5a79147930aa725, 0x06ca6351e003826f, 0x142929670a0e6e70,
    0x27b70a8546d22ffc, 0x2e1b21385c26c926, 0x4d2c6dfc5ac42aed, 0x53380d139d95b3df,
    0x650a73548baf63de, 0x766a0abb3c77b2a8, 0x81c2c92e47edaee6, 0x92722c851482353b,
    0xa2bfe8a14cf10364, 0xa81a664bbc423001, 0xc24b8b70d0f89791, 0xc76c51a30654be30,
    0xd192e819d6ef5218, 0xd69906245565a910, 0xf40e35855771202a, 0x106aa07032bbd1b8,
    0x19a4c116b8d2d0c8, 0x1e376c085141ab53, 0x2748774cdf8eeb99, 0x34b0bcb5e19b48a8,
    0x391c0cb3c5c95a63, 0x4ed8aa4ae3418acb, 0x5b9cca4f7763e373, 0x682e6ff3d6b2b8a3,
    0x748f82ee5defb2fc, 0x78a5636f43172f60, 0x84c87814a1f0ab72, 0x8cc702081a6439ec,
    0x90befffa23631e28, 0xa4506cebde82bde9, 0xbef9a3f7b2c67915, 0xc67178f2e372532b,
    0xca273eceea26619c, 0xd186b8c721c0c207, 0xeada7dd6cde0eb1e, 0xf57d4f7fee6ed178,
    0x06f067aa72176fba, 0x0a637dc5a2c898a6, 0x113f9804bef90dae, 0x1b710b35131c471b,
    0x28db77f523047d84, 0x32caab7b40c72493, 0x3c9ebe0a15c9bebc, 0x431d67c49c100d4c,
    0x4cc5d4becb3e42b6, 0x597f299cfc657e2a, 0x5fcb6fab3ad6faec, 0x6c44198c4a475817,
};

static const uint64_t starts[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};

static uint64_t read_big(const unsigned char *data, size_t bytes) {
  uint64_t value = 0;
  for (size_t k = 0; k < bytes; k++) value = value << 8 | data[k];
  return value;
}

static void write_big(unsigned char *data, uint64_t value, size_t bytes) {
  for (size_t k = 0; k < bytes; k++) data[k] = (unsigned char)(value >> 8 * (bytes - 1 - k));
}

#define TURN32(x, n) ((x) >> (n) | (x) << (32 - (n)))
#define TURN64(x, n) ((x) >> (n) | (x) << (64 - (n)))

/* One step of sections 6.2.2 and 6.4.2: the values e and a of the next one are written to d and h, so that the eight
   values need not move if the next step takes them one further. */
#define STEP(a, b, c, d, e, f, g, h, mixed_e, mixed_a, summand) \
  h += (mixed_e) + ((e & f) ^ (~e & g)) + (summand);            \
  d += h;                                                       \
  h += (mixed_a) + ((a & b) ^ (a & c) ^ (b & c))
#define STEP32(a, b, c, d, e, f, g, h, t)                                             \
  STEP(a, b, c, d, e, f, g, h, TURN32(e, 6) ^ TURN32(e, 11) ^ TURN32(e, 25),          \
       TURN32(a, 2) ^ TURN32(a, 13) ^ TURN32(a, 22), (uint32_t)(constants[t] >> 32) + words[t])
#define STEP64(a, b, c, d, e, f, g, h, t)                                             \
  STEP(a, b, c, d, e, f, g, h, TURN64(e, 14) ^ TURN64(e, 18) ^ TURN64(e, 41),         \
       TURN64(a, 28) ^ TURN64(a, 34) ^ TURN64(a, 39), constants[t] + words[t])
#define EIGHT(step, t)                                    \
  step(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], t);     \
  step(s[7], s[0], s[1], s[2], s[3], s[4], s[5], s[6], t + 1); \
  step(s[6], s[7], s[0], s[1], s[2], s[3], s[4], s[5], t + 2); \
  step(s[5], s[6], s[7], s[0], s[1], s[2], s[3], s[4], t + 3); \
  step(s[4], s[5], s[6], s[7], s[0], s[1], s[2], s[3], t + 4); \
  step(s[3], s[4], s[5], s[6], s[7], s[0], s[1], s[2], t + 5); \
  step(s[2], s[3], s[4], s[5], s[6], s[7], s[0], s[1], t + 6); \
  step(s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[0], t + 7)

/* One block of 64 bytes: section 6.2.2. */
static void mix256(uint64_t *state, const unsigned char *block) {
  uint32_t words[64], s[8];
  for (int t = 0; t < 16; t++) words[t] = (uint32_t)read_big(block + 4 * t, 4);
  for (int t = 16; t < 64; t++) {
    uint32_t a = words[t - 15], b = words[t - 2];
    words[t] = words[t - 16] + (TURN32(a, 7) ^ TURN32(a, 18) ^ a >> 3) + words[t - 7] +
               (TURN32(b, 17) ^ TURN32(b, 19) ^ b >> 10);
  }
  for (int k = 0; k < 8; k++) s[k] = (uint32_t)state[k];
  for (int t = 0; t < 64; t += 8) {
    EIGHT(STEP32, t);
  }
  for (int k = 0; k < 8; k++) state[k] = (uint32_t)(state[k] + s[k]);
}

/* One block of 128 bytes: section 6.4.2. */
static void mix512(uint64_t *state, const unsigned char *block) {
  uint64_t words[80], s[8];
  for (int t = 0; t < 16; t++) words[t] = read_big(block + 8 * t, 8);
  for (int t = 16; t < 80; t++) {
    uint64_t a = words[t - 15], b = words[t - 2];
    words[t] = words[t - 16] + (TURN64(a, 1) ^ TURN64(a, 8) ^ a >> 7) + words[t - 7] +
               (TURN64(b, 19) ^ TURN64(b, 61) ^ b >> 6);
  }
  memcpy(s, state, sizeof s);
  for (int t = 0; t < 80; t += 8) {
    EIGHT(STEP64, t);
  }
  for (int k = 0; k < 8; k++) state[k] += s[k];
}

void digest_start(digest *this, bool is_long) {
  memset(this, 0, sizeof *this);
  this->is_long = is_long;
  for (int k = 0; k < 8; k++) this->state[k] = is_long ? starts[k] : starts[k] >> 32;
}

static void mix(digest *this, const unsigned char *block) {
  if (this->is_long)
    mix512(this->state, block);
  else
    mix256(this->state, block);
}

void digest_add(digest *this, const void *data, size_t size) {
  const unsigned char *next = data;
  size_t block = this->is_long ? 128 : 64;
  this->bytes += size;
  while (size > 0) {
    if (this->held == 0 && size >= block) {
      mix(this, next);
      next += block;
      size -= block;
      continue;
    }
    size_t count = size < block - this->held ? size : block - this->held;
    memcpy(this->block + this->held, next, count);
    this->held += count;
    next += count;
    size -= count;
    if (this->held == block) {
      mix(this, this->block);
      this->held = 0;
    }
  }
}

/* Writes 32 bytes, or 64: the padding is that of section 5.1. */
void digest_end(digest *this, unsigned char *result) {
  size_t block = this->is_long ? 128 : 64, word = this->is_long ? 8 : 4, length = 2 * word;
  uint64_t bytes = this->bytes;
  this->block[this->held++] = 0x80;
  if (this->held > block - length) {
    memset(this->block + this->held, 0, block - this->held);
    mix(this, this->block);
    this->held = 0;
  }
  memset(this->block + this->held, 0, block - this->held);
  write_big(this->block + block - 8, bytes << 3, 8);
  if (this->is_long) write_big(this->block + block - 16, bytes >> 61, 8);
  mix(this, this->block);
  for (size_t k = 0; k < 8; k++) write_big(result + word * k, this->state[k], word);
}

/* *** CRC-32 *** */

static uint32_t tables[8][256]; /* of a byte, and of one with 1 to 7 zeros behind it */
static pthread_once_t tables_made = PTHREAD_ONCE_INIT;

static void make_tables(void) {
  for (uint32_t k = 0; k < 256; k++) {
    uint32_t rest = k;
    for (int bit = 0; bit < 8; bit++) rest = rest >> 1 ^ (rest & 1 ? 0xEDB88320U : 0);
    tables[0][k] = rest;
  }
  for (int zeros = 1; zeros < 8; zeros++)
    for (int k = 0; k < 256; k++)
      tables[zeros][k] = tables[zeros - 1][k] >> 8 ^ tables[0][tables[zeros - 1][k] & 255];
}

uint32_t add_crc(uint32_t crc, const void *data, size_t size) {
  const unsigned char *next = data;
  pthread_once(&tables_made, make_tables);
  crc = ~crc;
  for (; size >= 8; size -= 8, next += 8) {
    uint32_t low = crc ^ (next[0] | (uint32_t)next[1] << 8 | (uint32_t)next[2] << 16 | (uint32_t)next[3] << 24);
    crc = tables[7][low & 255] ^ tables[6][low >> 8 & 255] ^ tables[5][low >> 16 & 255] ^ tables[4][low >> 24] ^
          tables[3][next[4]] ^ tables[2][next[5]] ^ tables[1][next[6]] ^ tables[0][next[7]];
  }
  for (; size > 0; size--) crc = crc >> 8 ^ tables[0][(crc ^ *next++) & 255];
  return ~crc;
}
